//! Sums over frames of the rows of a stage.

use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{Column, JoinType, NullEquality, Result, ScalarValue, internal_err};
use datafusion_expr::builder::union;
use datafusion_expr::expr::WindowFunction;
use datafusion_expr::{Aggregate, Expr, LogicalPlan, Operator, Projection, binary_expr, when};
use datafusion_functions_aggregate::sum::sum;
use std::sync::Arc;

use crate::reverse::cotangents::{Cotangents, RowCotangents};
use crate::reverse::region::{joined, renamed};
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

/// The rows of a stage that frames with a cotangent reach, once for each of the values that the cotangents are by.
///
/// One window would add the cotangents of all values. So each row with a cotangent is joined to the rows of its frame:
///
/// ```text
/// Inner Join: s.row = c.row
///   the rows s
///   Aggregate: groupBy=[[row, of]], aggr=[[sum(∂cotangent), ...]] AS c
///     Union
///       Inner Join: r.p IS NOT DISTINCT FROM s.p, s.number BETWEEN r.low AND r.high
///         the rows r, each with the cotangents of its frame and the number of the value
///         the rows s
///       the cotangents of the other columns
/// ```
pub struct ByValue<'r> {
    /// The rows of the stage.
    pub rows: &'r LogicalPlan,
    /// The column with their numbers.
    pub number: &'r Column,
    /// What rows and values the cotangents are of.
    pub total: RowCotangents,
}

impl ByValue<'_> {
    /// The rows, and the column with the numbers of values. `sums` have the cotangents of columns that are sums over frames, `others` those of
    /// the others.
    pub fn transposed(
        self,
        sums: Vec<(&FramedSum, Expr)>,
        others: Vec<(&Column, Expr)>,
        cotangents: &mut Cotangents,
        names: &mut Names,
    ) -> Result<(LogicalPlan, Option<Column>)> {
        let Self { rows, number, total } = self;
        let (Some(row), Some(of)) = (total.row, total.of) else { return internal_err!("cotangents have no values") };
        let before = rows.schema().columns();
        let own = renamed(rows.clone(), names)?;
        let over_own = |expr: Expr| {
            let over = expr.transform_up(|part| match &part {
                Expr::Column(column) => match before.iter().position(|known| known == column) {
                    Some(index) => Ok(Transformed::yes(Expr::Column(own.columns[index].clone()))),
                    None => Ok(Transformed::no(part)),
                },
                _ => Ok(Transformed::no(part)),
            });
            over.map(|over| over.data)
        };
        let on = vec![(over_own(Expr::Column(number.clone()))?, Expr::Column(row.clone()))];
        let nulls = NullEquality::NullEqualsNothing;
        let sources = joined(own.plan.clone(), total.plan, on, None, JoinType::Inner, nulls)?;
        let width = sums.len() + others.len();
        let keys = ["row", "of"].map(|name| names.part(name));
        let summed: Vec<_> = (0..width).map(|_| Column::new_unqualified(names.part("cotangent"))).collect();
        // The rows of a part, with what it has of some of the cotangents.
        let part = |plan: LogicalPlan, row: Expr, known: Vec<(usize, Expr)>| -> Result<LogicalPlan> {
            let mut exprs: Vec<_> =
                [row, Expr::Column(of.clone())].into_iter().zip(&keys).map(|(key, name)| key.alias(name)).collect();
            for (position, column) in summed.iter().enumerate() {
                let value = known.iter().find(|(known, _)| *known == position).map(|(_, value)| value.clone());
                let value = value.unwrap_or(Expr::Literal(ScalarValue::Float64(None), None));
                exprs.push(value.alias(column.name.clone()));
            }
            Ok(LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(plan))?))
        };
        let mut parts = vec![];
        for (position, (sum, cotangent)) in sums.into_iter().enumerate() {
            let params = &sum.transpose.params;
            let [_, low, high] = params.args.as_slice() else { return internal_err!("a frame has no bounds") };
            let [order] = params.order_by.as_slice() else { return internal_err!("a frame has no order") };
            let in_frame = order.expr.clone().between(over_own(low.clone())?, over_own(high.clone())?);
            let mut on = vec![];
            for key in &params.partition_by {
                on.push((over_own(key.clone())?, key.clone()));
            }
            let pairs = joined(
                sources.clone(),
                rows.clone(),
                on,
                Some(in_frame),
                JoinType::Inner,
                NullEquality::NullEqualsNull,
            )?;
            let of_frame = over_own(sum.of_frame(cotangent)?)?;
            parts.push(part(pairs, Expr::Column(number.clone()), vec![(position, of_frame)])?);
            cotangents.add(&sum.input.name, Expr::Column(summed[position].clone()));
        }
        let first = parts.len();
        let known = others.iter().enumerate().map(|(number, (_, cotangent))| (first + number, cotangent.clone()));
        let known: Vec<_> = known.collect();
        if !known.is_empty() {
            parts.push(part(sources, Expr::Column(row), known)?);
        }
        for ((column, _), cotangent) in others.iter().zip(&summed[first..]) {
            cotangents.add(&column.name, Expr::Column(cotangent.clone()));
        }
        let mut parts = parts.into_iter();
        let Some(mut all) = parts.next() else { return internal_err!("a stage has no cotangents") };
        for other in parts {
            all = union(all, other)?;
        }
        let [row, of] = keys.map(Column::new_unqualified);
        let sums = summed.iter().map(|column| sum(Expr::Column(column.clone())).alias(column.name.clone())).collect();
        let keys = [&row, &of].map(|key| Expr::Column(key.clone())).to_vec();
        let all = LogicalPlan::Aggregate(Aggregate::try_new(Arc::new(all), keys, sums)?);
        let on = vec![(Expr::Column(number.clone()), Expr::Column(row))];
        Ok((joined(rows.clone(), all, on, None, JoinType::Inner, nulls)?, Some(of)))
    }
}
