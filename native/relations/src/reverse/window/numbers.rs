//! What does not vary with windows: constant functions, and the numbers of rows and frames.

use datafusion_common::{Column, Result, ScalarValue};
use datafusion_expr::expr::{NullTreatment, Sort, WindowFunction};
use datafusion_expr::{
    Expr, LogicalPlan, Window, WindowFrame, WindowFrameBound, WindowFrameUnits, WindowFunctionDefinition, lit, when,
};
use datafusion_functions_aggregate::count::count_udaf;
use datafusion_functions_aggregate::min_max::{max_udaf, min_udaf};
use std::sync::Arc;

use super::functions::{Function, is_of_one_row};
use crate::reverse::builder::RegionBuilder;
use crate::reverse::region::Region;
use crate::rows::frames::is_over_partition;

/// A window function whose value varies, over columns of a stage by their positions.
pub struct Varying {
    /// The function.
    pub function: WindowFunction,
    /// The call as the user wrote it.
    pub original: Expr,
    /// The columns of the keys. A constant keeps all rows together, and is none.
    pub partition: Vec<usize>,
    /// The columns of the arguments, none for a constant.
    pub arguments: Vec<Option<usize>>,
    /// The column of the condition.
    pub filter: Option<usize>,
    /// The rows that the value is of.
    pub rows: Reached,
}

/// Which rows of the partition the value of a row is of.
pub enum Reached {
    /// All of them.
    All,
    /// Those with numbers within bounds, which each row has.
    Between {
        /// The column of the numbers.
        number: usize,
        /// Those of the bounds.
        bounds: [usize; 2],
    },
    /// The one with the number that each row has.
    Chosen {
        /// The column of the numbers.
        number: usize,
        /// That of the number of the row that is chosen.
        chosen: usize,
    },
}

/// Where an output of the node comes from.
pub enum Output {
    /// A column.
    Constant(usize),
    /// The rows of a window.
    Varying(Box<Varying>),
}

/// A function with what has been added to the region for it: its own value, or the number of each row.
enum First<'w> {
    Constant(Column),
    OverPartition(Function<'w>),
    Numbered(Function<'w>, Column),
}

/// A region to which windows are added.
pub struct Numbered<'b, 'a> {
    /// What makes regions, which gives the names.
    pub builder: &'b mut RegionBuilder<'a>,
    /// The region.
    pub region: &'b mut Region,
}

impl Numbered<'_, '_> {
    /// Adds windows that do not vary, and says of each function where its value comes from.
    pub fn outputs(mut self, functions: Vec<Function>, varies: &[bool]) -> Result<Vec<Output>> {
        let mut windows = vec![];
        let mut first = vec![];
        for (function, varies) in functions.into_iter().zip(varies) {
            first.push(match varies {
                false => First::Constant(self.column(&mut windows, Expr::from(function.call), "number")),
                true if is_over_partition(&function.call) => First::OverPartition(function),
                true => {
                    let number = self.column(&mut windows, number_in(&function.call), "number");
                    First::Numbered(function, number)
                }
            });
        }
        self.add(windows)?;
        let mut windows = vec![];
        let mut outputs = vec![];
        for first in first {
            outputs.push(match first {
                First::Constant(column) => Output::Constant(self.position(column)),
                First::OverPartition(function) => self.varying(function, Reached::All),
                First::Numbered(function, number) => {
                    let rows = self.rows(&function.call, &number, &mut windows)?;
                    self.varying(function, rows)
                }
            });
        }
        self.add(windows)?;
        Ok(outputs)
    }

    /// The rows that the value of a function is of, by their numbers.
    fn rows(&mut self, function: &WindowFunction, number: &Column, windows: &mut Vec<Expr>) -> Result<Reached> {
        let position = self.position(number.clone());
        if is_of_one_row(function) {
            let chosen = self.chosen(function, number)?;
            let chosen = self.column(windows, chosen, "chosen");
            return Ok(Reached::Chosen { number: position, chosen: self.position(chosen) });
        }
        let bounds = [min_udaf(), max_udaf()].map(|extremum| {
            let definition = WindowFunctionDefinition::AggregateUDF(extremum);
            let bound = WindowFunction::new(definition, vec![Expr::Column(number.clone())]);
            Expr::from(in_window_of(bound, function, number))
        });
        let bounds = bounds.map(|bound| {
            let column = self.column(windows, bound, "bound");
            self.position(column)
        });
        Ok(Reached::Between { number: position, bounds })
    }

    fn varying(&mut self, Function { call, original }: Function, rows: Reached) -> Output {
        let mut position = |expr: &Expr| match expr {
            Expr::Column(column) => Some(self.position(column.clone())),
            _ => None,
        };
        let partition = call.params.partition_by.iter().filter_map(&mut position).collect();
        let arguments = call.params.args.iter().map(&mut position).collect();
        let filter = call.params.filter.as_deref().and_then(&mut position);
        let original = original.clone();
        Output::Varying(Box::new(Varying { function: call, original, partition, arguments, filter, rows }))
    }

    /// The number of the row that a function chooses: what the function gives of the numbers.
    ///
    /// ```text
    /// lag(x, 2, d) IGNORE NULLS OVER (ORDER BY t)
    /// ->
    /// lag(CASE WHEN x IS NOT NULL THEN number END, 2) IGNORE NULLS OVER (ORDER BY t, number)
    /// ```
    fn chosen(&mut self, function: &WindowFunction, number: &Column) -> Result<Expr> {
        let mut chosen = function.clone();
        chosen.params.args.truncate(2);
        if let Some(value) = chosen.params.args.first_mut() {
            let mut of = number.clone();
            if function.params.null_treatment == Some(NullTreatment::IgnoreNulls) {
                let known = when(value.clone().is_not_null(), Expr::Column(of.clone())).end()?;
                of = self.region.add(vec![("number".to_owned(), known)], self.builder.names)?.pop().unwrap_or(of);
            }
            *value = Expr::Column(of);
        }
        Ok(Expr::from(in_window_of(chosen, function, number)))
    }

    /// The column of a window, which is added to others that the region will have.
    fn column(&mut self, windows: &mut Vec<Expr>, expr: Expr, name: &str) -> Column {
        self.builder.names.column(expr, windows, |names| names.part(name))
    }

    fn add(&mut self, windows: Vec<Expr>) -> Result<()> {
        if !windows.is_empty() {
            let plan = std::mem::take(&mut self.region.plan);
            self.region.plan = LogicalPlan::Window(Window::try_new(windows, Arc::new(plan))?);
        }
        Ok(())
    }

    /// The position of a column among those of the region, which is added if it is not one of them yet.
    fn position(&mut self, column: Column) -> usize {
        let columns = &mut self.region.columns;
        let known = columns.iter().position(|own| *own == column);
        known.unwrap_or_else(|| {
            columns.push(column);
            columns.len() - 1
        })
    }
}

/// The number of a row in the order of a window, not by `row_number()`, with which DataFusion 54 confuses that of the stage.
fn number_in(function: &WindowFunction) -> Expr {
    let mut number = WindowFunction::new(WindowFunctionDefinition::AggregateUDF(count_udaf()), vec![lit(1)]);
    number.params.window_frame = WindowFrame::new_bounds(
        WindowFrameUnits::Rows,
        WindowFrameBound::Preceding(ScalarValue::UInt64(None)),
        WindowFrameBound::CurrentRow,
    );
    number.params.partition_by = function.params.partition_by.clone();
    number.params.order_by = function.params.order_by.clone();
    Expr::from(number)
}

/// A function of the numbers of rows over the rows that another one is over.
fn in_window_of(mut numbers: WindowFunction, function: &WindowFunction, number: &Column) -> WindowFunction {
    let params = &mut numbers.params;
    params.partition_by.clone_from(&function.params.partition_by);
    params.order_by.clone_from(&function.params.order_by);
    params.window_frame = function.params.window_frame.clone();
    if params.window_frame.units == WindowFrameUnits::Rows || matches!(function.fun.name(), "lag" | "lead") {
        // Rows that the order leaves equal have one order among them, that of their numbers.
        params.order_by.push(Sort::new(Expr::Column(number.clone()), true, false));
    }
    numbers
}
