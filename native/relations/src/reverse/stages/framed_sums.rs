//! Sums over frames of the rows of a stage.

use datafusion_common::{Column, Result};
use datafusion_expr::expr::WindowFunction;
use datafusion_expr::{Expr, LogicalPlan, Operator, binary_expr, when};

use crate::reverse::cotangents::Cotangents;
use crate::rows::frame_sums::FrameSum;
use crate::rows::frames::with_windows;
use crate::vocabulary::names::{Names, with_columns};

/// A column with sums over frames.
pub struct FramedSum {
    /// The column.
    output: Column,
    /// The column that is summed.
    input: Column,
    /// What a row has in the value of its frame, 1 if it is none.
    pub share: Option<Expr>,
    /// The window that sums cotangents, which is its first argument.
    transpose: WindowFunction,
}

impl FramedSum {
    /// The column that a call gives, which is a sum of this project over a column.
    pub fn of(output: &Column, call: &WindowFunction) -> Option<Self> {
        let Some(Expr::Column(input)) = call.params.args.first() else { return None };
        let fun = FrameSum::of(&call.fun)?.transpose().function();
        let transpose = WindowFunction { fun, params: call.params.clone() };
        Some(Self { output: output.clone(), input: input.clone(), share: None, transpose })
    }

    /// Whether it is a column.
    pub fn is(&self, column: &Column) -> bool {
        self.output == *column
    }

    /// The columns that carrying cotangents back reads.
    pub fn reads(&self) -> Vec<Column> {
        let params = &self.transpose.params;
        let orders = params.order_by.iter().map(|sort| &sort.expr);
        // In the place of the first argument is the cotangent.
        let exprs = params.args.iter().skip(1).chain(&params.partition_by).chain(orders).chain(&self.share);
        exprs.flat_map(Expr::column_refs).cloned().collect()
    }

    /// What the frames with a cotangent have for each of their rows. One without a value has no rows.
    fn of_frame(&self, cotangent: Expr) -> Result<Expr> {
        match &self.share {
            Some(share) => {
                let share = binary_expr(cotangent, Operator::Multiply, share.clone());
                when(Expr::Column(self.output.clone()).is_not_null(), share).end()
            }
            None => Ok(cotangent),
        }
    }
}

/// All rows of a stage with the sums of the cotangents of the frames that they are in.
///
/// ```text
/// WindowAggr: sum_of_frames(∂cotangent, low, high) PARTITION BY p ORDER BY number
///   the rows, each with the cotangent of its own frame
/// ```
pub fn transposed(
    rows: LogicalPlan,
    sums: Vec<(&FramedSum, Expr)>,
    cotangents: &mut Cotangents,
    names: &mut Names,
) -> Result<LogicalPlan> {
    let mut of_frames = vec![];
    let mut windows = vec![];
    for (sum, cotangent) in sums {
        let of_frame = names.column(sum.of_frame(cotangent)?, &mut of_frames, |names| names.part("cotangent"));
        let mut call = sum.transpose.clone();
        if let Some(value) = call.params.args.first_mut() {
            *value = Expr::Column(of_frame);
        }
        let of_row = names.column(Expr::from(call), &mut windows, |names| names.part("cotangent"));
        cotangents.add(&sum.input.name, Expr::Column(of_row));
    }
    with_windows(with_columns(rows, of_frames)?, windows)
}
