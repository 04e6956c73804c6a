//! Window functions as joins of the rows of a stage with themselves.
//!
//! A row's frame is a range of row numbers, so that an aggregate over it is one over the rows of a join, and `lag` is the row
//! whose number is the `lag` of the numbers.
//!
//! ```text
//! Window: sum(x) OVER (PARTITION BY p ORDER BY t)
//!   rows
//! ->
//! Left Join: i.row = g.row
//!   rows i
//!   Aggregate: i.row, sum(j.x)
//!     Join: i.p IS NOT DISTINCT FROM j.p, j.number BETWEEN i.low AND i.high
//!       rows i
//!       rows j
//! ```

use datafusion_common::{Column, JoinType, NullEquality, Result, ScalarValue, plan_err};
use datafusion_expr::expr::{AggregateFunction, NullTreatment, Sort, WindowFunction};
use datafusion_expr::{
    Expr, ExprSchemable, LogicalPlan, Window, WindowFrame, WindowFrameBound, WindowFrameUnits,
    WindowFunctionDefinition, cast, lit, when,
};
use datafusion_functions_aggregate::count::count_udaf;
use datafusion_functions_aggregate::min_max::{max_udaf, min_udaf};
use std::sync::Arc;
use xql_autodiff::vocabulary::columns::is_volatile;
use xql_autodiff::vocabulary::messages::abbreviated;

use super::Linearizer;
use super::groups::Members;
use super::settled::is_read_again_as_it_is;
use crate::forward::Draws;
use crate::reverse::nodes::Node;
use crate::reverse::region::{Region, StageId};
use crate::rows::frames::is_over_partition;
use crate::rows::stays;
use crate::vocabulary::names::{Names, restore};
use xql_autodiff::vocabulary::types::can_vary;

/// A window function whose value varies, over columns of a stage.
struct Varying {
    function: WindowFunction,
    original: Expr,
    partition: Vec<usize>,
    arguments: Vec<usize>,
    filter: Option<usize>,
    rows: Rows,
}

/// Which rows of the partition the value of a row is of.
enum Rows {
    All,
    /// Those with numbers within bounds, which each row has.
    Between {
        number: usize,
        bounds: [usize; 2],
    },
    /// The one with the number that each row has.
    Chosen {
        number: usize,
        chosen: usize,
    },
}

/// Where an output of the node comes from.
enum Output {
    Constant(usize),
    Varying(Box<Varying>),
}

impl Linearizer<'_> {
    pub fn window(&mut self, node: Node, window: &Window) -> Result<Region> {
        if window.window_expr.iter().any(is_volatile) {
            let once = self.stages.nodes.keep(drawn_below(window, self.names)?);
            return self.region(&once);
        }
        let schema = window.input.schema();
        let width = schema.fields().len();
        let (mut region, functions) = self.functions(window)?;
        let mut varies = vec![];
        for (function, _) in &functions {
            let mut argument_varies = false;
            for argument in &function.params.args {
                argument_varies |= region.varies(argument)?;
            }
            let data_type = Expr::from(function.clone()).get_type(region.plan.schema())?;
            varies.push(argument_varies && can_vary(&data_type));
        }
        // Rows that are cheap to read again need not be stored beside their numbers.
        let by_partition =
            functions.iter().zip(&varies).all(|((function, _), varies)| *varies && is_over_partition(function));
        if by_partition && is_read_again_as_it_is(&region.plan)? {
            let mut columns = region.columns.clone();
            for (number, (function, original)) in functions.iter().enumerate() {
                let (over, mut again) = self.functions(window)?;
                let (call, _) = again.swap_remove(number);
                let by = call.params.partition_by.clone();
                let call = aggregate(&call, call.params.args.clone(), call.params.filter.clone());
                let on = function.params.partition_by.iter().cloned().zip(by).collect();
                columns.push(self.over_partition(&mut region, over, on, call, original)?);
            }
            region.columns = columns;
            return Ok(region);
        }
        let outputs = self.numbered(&mut region, functions, &varies)?;
        if !varies.contains(&true) {
            return self.settled(node, region);
        }
        let total = region.columns.len();
        let stage = self.same(region)?;
        let mut outer = self.stages.numbered(stage, total, self.names)?;
        let mut columns: Vec<_> = outer.columns[..width].to_vec();
        for output in outputs {
            columns.push(match output {
                Output::Constant(position) => outer.columns[position].clone(),
                Output::Varying(varying) => self.varying(&mut outer, stage, total, &varying)?,
            });
        }
        outer.columns = columns;
        Ok(outer)
    }

    /// The region of the input of windows, with all that they read, and the windows over it, each with that of the node.
    fn functions<'w>(&mut self, window: &'w Window) -> Result<(Region, Vec<(WindowFunction, &'w Expr)>)> {
        let mut region = self.region(&window.input)?;
        let mut functions = vec![];
        for expr in &window.window_expr {
            let Expr::WindowFunction(function) = expr.clone().unalias_nested().data else {
                return plan_err!("{} is not a window function", abbreviated(expr));
            };
            let default = function.params.args.get(2);
            if is_of_one_row(&function) && default.is_some_and(|default| !stays(default, &function.fun)) {
                return plan_err!(
                    "DataFusion takes only a constant as the default of {}. Use coalesce({}(x) OVER (...), default)",
                    abbreviated(expr),
                    function.fun.name()
                );
            }
            functions.push((self.window_over_columns(*function, &mut region, window.input.schema())?, expr));
        }
        Ok((region, functions))
    }

    /// A window function that reads columns of a region only, and constants.
    fn window_over_columns(
        &mut self,
        mut function: WindowFunction,
        region: &mut Region,
        schema: &datafusion_common::DFSchema,
    ) -> Result<WindowFunction> {
        let params = &mut function.params;
        let arguments = params.args.iter_mut().filter(|argument| !stays(argument, &function.fun));
        let read = arguments.chain(&mut params.partition_by);
        let read = read.chain(params.order_by.iter_mut().map(|sort| &mut sort.expr));
        for expr in read.chain(params.filter.iter_mut().map(Box::as_mut)) {
            if !matches!(expr, Expr::Literal(..))
                && let Some(column) = self.computed(region, std::slice::from_ref(expr), schema)?.pop()
            {
                *expr = Expr::Column(column);
            }
        }
        Ok(function)
    }

    /// Adds to a region what does not vary with windows: constant functions, and numbers of rows and frames.
    fn numbered(
        &mut self,
        region: &mut Region,
        functions: Vec<(WindowFunction, &Expr)>,
        varies: &[bool],
    ) -> Result<Vec<Output>> {
        let mut first = vec![];
        let mut outputs = vec![];
        for ((function, original), varies) in functions.into_iter().zip(varies) {
            if *varies && is_over_partition(&function) {
                outputs.push((function, original, *varies, None));
                continue;
            }
            let added = if *varies {
                // The number of a row, not by `row_number()`, with which DataFusion 54 confuses that of the stage.
                let mut number =
                    WindowFunction::new(WindowFunctionDefinition::AggregateUDF(count_udaf()), vec![lit(1)]);
                number.params.window_frame = WindowFrame::new_bounds(
                    WindowFrameUnits::Rows,
                    WindowFrameBound::Preceding(ScalarValue::UInt64(None)),
                    WindowFrameBound::CurrentRow,
                );
                number.params.partition_by = function.params.partition_by.clone();
                number.params.order_by = function.params.order_by.clone();
                Expr::from(number)
            } else {
                Expr::from(function.clone())
            };
            let column = self.window_column(&mut first, added, "number");
            outputs.push((function, original, *varies, Some(column)));
        }
        add_windows(region, first)?;
        let mut second = vec![];
        let mut found = vec![];
        for (function, original, varies, column) in outputs {
            let number = column.clone().map_or(usize::MAX, |column| position(region, column));
            if !varies {
                found.push(Output::Constant(number));
                continue;
            }
            let rows = match column {
                None => Rows::All,
                Some(column) if is_of_one_row(&function) => {
                    let chosen = self.chosen(region, &function, &column)?;
                    Rows::Chosen { number, chosen: position(region, self.window_column(&mut second, chosen, "chosen")) }
                }
                Some(column) => {
                    let bounds = [min_udaf(), max_udaf()].map(|extremum| {
                        let definition = WindowFunctionDefinition::AggregateUDF(extremum);
                        let bound = WindowFunction::new(definition, vec![Expr::Column(column.clone())]);
                        Expr::from(in_window_of(bound, &function, &column))
                    });
                    let bounds = bounds.map(|bound| self.window_column(&mut second, bound, "bound"));
                    Rows::Between { number, bounds: bounds.map(|bound| position(region, bound)) }
                }
            };
            let column_at = |region: &mut Region, expr: &Expr| match expr {
                Expr::Column(column) => position(region, column.clone()),
                _ => usize::MAX,
            };
            let params = &function.params;
            let partition = params.partition_by.iter().map(|expr| column_at(region, expr)).collect();
            let arguments = params.args.iter().map(|expr| column_at(region, expr)).collect();
            let filter = params.filter.as_deref().map(|expr| column_at(region, expr));
            found.push(Output::Varying(Box::new(Varying {
                original: original.clone(),
                partition,
                arguments,
                filter,
                rows,
                function,
            })));
        }
        add_windows(region, second)?;
        Ok(found)
    }

    fn window_column(&mut self, computed: &mut Vec<Expr>, expr: Expr, name: &str) -> Column {
        self.names.column(expr, computed, |names| names.part(name))
    }

    /// Joins the value of a window function to the rows of its stage.
    fn varying(&mut self, outer: &mut Region, stage: StageId, total: usize, varying: &Varying) -> Result<Column> {
        match (&varying.function.fun, &varying.rows) {
            (_, Rows::Chosen { number, chosen }) => self.chosen_row(outer, stage, total, varying, [*number, *chosen]),
            (WindowFunctionDefinition::AggregateUDF(_), _) => self.over_frame(outer, stage, total, varying),
            (other, _) => plan_err!(
                "{} varies, and no derivative by row is known for the function {}",
                abbreviated(&varying.original),
                other.name()
            ),
        }
    }

    /// The number of the row that a function chooses: what the function gives of the numbers.
    ///
    /// ```text
    /// lag(x, 2, d) IGNORE NULLS OVER (ORDER BY t)
    /// ->
    /// lag(CASE WHEN x IS NOT NULL THEN number END, 2) IGNORE NULLS OVER (ORDER BY t, number)
    /// ```
    fn chosen(&mut self, region: &mut Region, function: &WindowFunction, number: &Column) -> Result<Expr> {
        let mut chosen = function.clone();
        chosen.params.args.truncate(2);
        if let Some(value) = chosen.params.args.first_mut() {
            let mut of = number.clone();
            if function.params.null_treatment == Some(NullTreatment::IgnoreNulls) {
                let known = when(value.clone().is_not_null(), Expr::Column(of.clone())).end()?;
                of = region.add(vec![("number".to_owned(), known)], self.names)?.pop().unwrap_or(of);
            }
            *value = Expr::Column(of);
        }
        Ok(Expr::from(in_window_of(chosen, function, number)))
    }

    /// The value of the row that is chosen of the partition, by the positions of its number and of the number wanted.
    fn chosen_row(
        &mut self,
        outer: &mut Region,
        stage: StageId,
        total: usize,
        varying: &Varying,
        [number, chosen]: [usize; 2],
    ) -> Result<Column> {
        let other = self.stages.numbered(stage, total, self.names)?;
        let mut on = same_partition(outer, &other, varying);
        on.push((Expr::Column(outer.columns[chosen].clone()), Expr::Column(other.columns[number].clone())));
        let value = varying.arguments.first().and_then(|argument| other.columns.get(*argument)).cloned();
        let (Some(value), Some(found)) = (value, other.columns.last().cloned()) else {
            return plan_err!("{} has no column as its argument", abbreviated(&varying.original));
        };
        let width = outer.columns.len();
        let own = std::mem::replace(outer, Region::constant(LogicalPlan::default(), vec![], false));
        *outer = own.beside(other, on, None, JoinType::Left, NullEquality::NullEqualsNull)?;
        outer.columns.truncate(width);
        let Some(default) = varying.function.params.args.get(2) else { return Ok(value) };
        let value = Expr::Column(value);
        let default = cast(default.clone(), value.get_type(outer.plan.schema())?);
        let value = when(Expr::Column(found).is_null(), default).otherwise(value)?;
        let name = varying.function.fun.name().to_owned();
        let mut added = outer.add(vec![(name, value)], self.names)?;
        added.pop().map_or_else(|| plan_err!("a window function has no value"), Ok)
    }

    /// The value of an aggregate over the rows of the frame.
    fn over_frame(&mut self, outer: &mut Region, stage: StageId, total: usize, varying: &Varying) -> Result<Column> {
        let over = self.stages.numbered(stage, total, self.names)?;
        let params = &varying.function.params;
        let column = |index: usize| Expr::Column(over.columns[index].clone());
        let args = params.args.iter().zip(&varying.arguments).map(|(argument, index)| match argument {
            literal @ Expr::Literal(..) => literal.clone(),
            _ => column(*index),
        });
        let call = aggregate(&varying.function, args.collect(), varying.filter.map(|filter| Box::new(column(filter))));
        let Rows::Between { number, bounds } = varying.rows else {
            let on = same_partition(outer, &over, varying);
            return self.over_partition(outer, over, on, call, &varying.original);
        };
        let of = self.stages.numbered(stage, total, self.names)?;
        let on = same_partition(&of, &over, varying);
        let number = column(number);
        let [low, high] = bounds.map(|bound| Expr::Column(of.columns[bound].clone()));
        let in_frame = Some(number.between(low, high));
        let Some(row) = of.columns.last().cloned() else { return plan_err!("a stage has no numbers") };
        let pairs = of.joined(over, on, in_frame, JoinType::Inner, NullEquality::NullEqualsNull)?;
        let groups = self.groups(pairs, vec![row], vec![(call, varying.original.clone())], Members::Any)?;
        let groups = self.stages.reader(groups, 2, self.names)?;
        let value = groups.columns[1].clone();
        let Some(own) = outer.columns.get(total).cloned() else { return plan_err!("a stage has no numbers") };
        let on = vec![(Expr::Column(own), Expr::Column(groups.columns[0].clone()))];
        let width = outer.columns.len();
        let own = std::mem::replace(outer, Region::constant(LogicalPlan::default(), vec![], false));
        *outer = own.beside(groups, on, None, JoinType::Left, NullEquality::NullEqualsNothing)?;
        outer.columns.truncate(width);
        Ok(value)
    }

    /// The value of an aggregate over the whole partition of a row. `on` has the partitions of the rows and of those aggregated.
    fn over_partition(
        &mut self,
        outer: &mut Region,
        over: Region,
        on: Vec<(Expr, Expr)>,
        call: AggregateFunction,
        original: &Expr,
    ) -> Result<Column> {
        let (mut of, mut keys) = (vec![], vec![]);
        for (own, by) in on {
            // A constant keeps all rows together.
            if let Expr::Column(by) = by {
                of.push(own);
                keys.push(by);
            }
        }
        let stage = self.groups(over, keys, vec![(call, original.clone())], Members::Any)?;
        let groups = self.stages.reader(stage, of.len() + 1, self.names)?;
        let Some(value) = groups.columns.last().cloned() else { return plan_err!("a window function has no value") };
        let on = of.into_iter().zip(groups.columns.iter().cloned().map(Expr::Column)).collect();
        let width = outer.columns.len();
        let own = std::mem::replace(outer, Region::constant(LogicalPlan::default(), vec![], false));
        *outer = own.beside(groups, on, None, JoinType::Inner, NullEquality::NullEqualsNull)?;
        outer.columns.truncate(width);
        Ok(value)
    }
}

/// Windows over what their functions draw, which a derivative must not draw again.
fn drawn_below(window: &Window, names: &mut Names) -> Result<LogicalPlan> {
    let mut draws = Draws::new(names);
    let functions = window.window_expr.iter().cloned().map(|function| draws.function(function));
    let functions = functions.collect::<Result<_>>()?;
    let once = Window::try_new(functions, draws.below(Arc::clone(&window.input))?)?;
    restore(LogicalPlan::Window(once), &window.schema)
}

/// Whether a function gives the value of one row, which it chooses by its place.
fn is_of_one_row(function: &WindowFunction) -> bool {
    matches!(function.fun.name(), "first_value" | "last_value" | "nth_value" | "lag" | "lead")
        && matches!(function.fun, WindowFunctionDefinition::WindowUDF(_))
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

fn add_windows(region: &mut Region, functions: Vec<Expr>) -> Result<()> {
    if !functions.is_empty() {
        let plan = std::mem::take(&mut region.plan);
        region.plan = LogicalPlan::Window(Window::try_new(functions, Arc::new(plan))?);
    }
    Ok(())
}

/// The position of a column among those of a region, which is added if it is not one of them yet.
fn position(region: &mut Region, column: Column) -> usize {
    let known = region.columns.iter().position(|own| *own == column);
    known.unwrap_or_else(|| {
        region.columns.push(column);
        region.columns.len() - 1
    })
}

fn same_partition(of: &Region, over: &Region, varying: &Varying) -> Vec<(Expr, Expr)> {
    let column = |region: &Region, index: usize| Some(Expr::Column(region.columns.get(index)?.clone()));
    varying.partition.iter().filter_map(|index| Some((column(of, *index)?, column(over, *index)?))).collect()
}

/// The aggregate that a window function computes over its frame.
fn aggregate(function: &WindowFunction, args: Vec<Expr>, filter: Option<Box<Expr>>) -> AggregateFunction {
    let mut call = AggregateFunction::new_udf(count_udaf(), args, function.params.distinct, filter, vec![], None);
    if let WindowFunctionDefinition::AggregateUDF(function) = &function.fun {
        call.func = Arc::clone(function);
    }
    call
}
