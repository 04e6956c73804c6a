//! Tangents of window functions.

mod below;
mod cells;
mod own_cell;

use datafusion_common::{DFSchemaRef, Result, plan_err};
use datafusion_expr::{Expr, LogicalPlan, Window};
use std::collections::BTreeSet;
use std::sync::Arc;

use super::carrier::{Carried, Carrier, Reading, Variable};
use super::draws::Draws;
use crate::rows::{arguments, stays};
use crate::tangents::linearize::null_with_column;
use crate::tangents::tangent::{Linearized, Tangent};
use crate::vocabulary::expressions::unaliased;
use crate::vocabulary::names::{Names, with_columns};
pub use cells::is_one_cell;
use xql_autodiff::vocabulary::messages::abbreviated;

/// The window functions of a node over its input, which computes what they draw behind its columns.
pub struct Windows<'w> {
    pub input: LogicalPlan,
    pub functions: Vec<Expr>,
    /// The columns of the node.
    pub shown: DFSchemaRef,
    /// Those whose tangents are wanted.
    pub wanted: &'w BTreeSet<usize>,
}

impl Windows<'_> {
    /// How many columns the node passes on.
    fn width(&self) -> usize {
        self.shown.fields().len() - self.functions.len()
    }

    /// The columns among those wanted that the node passes on.
    pub fn passed_on(&self) -> BTreeSet<usize> {
        self.wanted.range(..self.width()).copied().collect()
    }

    /// The functions whose tangents are wanted, with the numbers of their columns.
    pub fn asked(&self) -> impl Iterator<Item = (usize, &Expr)> {
        let width = self.width();
        self.wanted.range(width..).filter_map(move |index| Some((*index, self.functions.get(index - width)?)))
    }
}

impl Carrier<'_> {
    /// The columns of the input keep their tangents. Partitions and order are taken as constant, as conditions are.
    ///
    /// ```text
    /// WindowAggr: windowExpr=[[sum(w * x) ORDER BY [id] AS s]]
    ///   TableScan: t
    /// ```
    ///
    /// becomes
    ///
    /// ```text
    /// Projection: w, x, id, ∂argument of sum, s, ∂sum, ∂sum AS ∂s/∂w
    ///   WindowAggr: windowExpr=[[sum(w * x) ORDER BY [id] AS s, sum(∂argument of sum) ORDER BY [id] AS ∂sum]]
    ///     Projection: w, x, id, jvp(w * x, w, 1) AS ∂argument of sum
    ///       TableScan: t
    /// ```
    pub fn window(&mut self, window: Window, variable: Variable, wanted: &BTreeSet<usize>) -> Result<Carried> {
        let shown = window.schema;
        let mut draws = Draws::new(self.names);
        let functions = window.window_expr.into_iter().map(|function| draws.function(function));
        let functions = functions.collect::<Result<Vec<_>>>()?;
        let input = Arc::unwrap_or_clone(draws.below(window.input)?);
        let windows = Windows { input, functions, shown, wanted };
        let Variable::Column(index) = variable else { return self.window_of_all_rows(windows, variable) };
        match self.reading {
            Reading::Together => self.window_of_all_rows(windows, variable),
            _ if !self.recursions.is_empty() => self.window_of_iterations(windows, variable),
            Reading::OwnCell { .. } => self.window_by_own_cell(windows, index),
            Reading::WindowsFixed => self.fixed_window(windows, variable),
        }
    }

    /// The window functions with all of their rows moving.
    fn window_of_all_rows(&mut self, windows: Windows, variable: Variable) -> Result<Carried> {
        let Windows { input, functions: window_expr, shown, .. } = &windows;
        let mut below = windows.passed_on();
        let functions: Vec<_> = windows.asked().collect();
        below.extend(self.needs(input, variable, functions.iter().flat_map(|(_, function)| arguments(function)))?);
        let carried = self.carry(input.clone(), variable, &below)?;
        let mut tangents = carried.tangents.clone();
        let mut computed = window_expr.clone();
        let mut exprs = vec![];
        for (index, function) in functions {
            let tangent = match self.over_rows(input, &carried, &mut computed).tangent(function)? {
                Linearized::Derived(expr) => {
                    let field = shown.field(index);
                    let expr = null_with_column(expr, shown, index)?;
                    let expr = self.of_type(expr, &self.tangent_type(field.data_type()));
                    Tangent::Column(self.add_computed(expr, field.name(), &mut exprs))
                }
                Linearized::Known(tangent) => tangent,
            };
            tangents.set(index, tangent);
        }
        let mut below = vec![];
        for added in computed.iter_mut().skip(window_expr.len()) {
            over_columns(added, &mut below, self.names);
        }
        let input = with_columns(carried.plan, below)?;
        let plan = LogicalPlan::Window(Window::try_new(computed, Arc::new(input))?);
        Ok(Carried { plan: with_columns(plan, exprs)?, tangents })
    }

    /// The columns of the input keep their tangents, and the functions stay as they are.
    fn fixed_window(&mut self, windows: Windows, variable: Variable) -> Result<Carried> {
        let below = windows.passed_on();
        let carried = self.carry(windows.input, variable, &below)?;
        let plan = LogicalPlan::Window(Window::try_new(windows.functions, Arc::new(carried.plan))?);
        Ok(Carried { plan, tangents: carried.tangents })
    }

    /// Functions of what varies over the rows of one iteration are refused: which cell these rows have is not carried along.
    fn window_of_iterations(&mut self, windows: Windows, variable: Variable) -> Result<Carried> {
        let input = &windows.input;
        let needs = self.needs(input, variable, windows.asked().flat_map(|(_, function)| arguments(function)))?;
        let carried = self.carry(input.clone(), variable, &needs)?;
        for (_, function) in windows.asked() {
            for argument in arguments(function) {
                if self.linearize(argument, input.schema(), &carried.tangents)? != Linearized::Known(Tangent::Zero) {
                    return plan_err!(
                        "{} in a recursive query varies with {} of the rows that it starts with, and iterations do not carry \
                         the derivative by the row's own. Write jvp(..., {}, 1), in which all rows move",
                        abbreviated(function),
                        self.variable,
                        self.variable
                    );
                }
            }
        }
        self.fixed_window(windows, variable)
    }
}

/// Lets a window function read columns of its own only, which are added to those that are computed below.
///
/// Where two window functions over one window are equal, or become so when their arguments are simplified, DataFusion 54
/// moves them to a projection, which it then cannot execute.
pub fn over_columns(function: &mut Expr, below: &mut Vec<Expr>, names: &mut Names) {
    let call = match function {
        Expr::Alias(alias) => alias.expr.as_mut(),
        other => other,
    };
    let Expr::WindowFunction(call) = call else { return };
    let name = format!("argument of {}", call.fun.name());
    for argument in &mut call.params.args {
        if !stays(argument, &call.fun) {
            *argument = Expr::Column(names.column(argument.clone(), below, |names| names.part(&name)));
        }
    }
}

/// A node for each partition and order that window functions have.
pub fn with_windows(plan: LogicalPlan, functions: Vec<Expr>) -> Result<LogicalPlan> {
    let mut nodes: Vec<Vec<Expr>> = vec![];
    let rows = |function: &Expr| match unaliased(function) {
        Expr::WindowFunction(call) => Some((call.params.partition_by.clone(), call.params.order_by.clone())),
        _ => None,
    };
    for function in functions {
        match nodes.iter_mut().find(|node| node.first().and_then(rows) == rows(&function)) {
            Some(node) => node.push(function),
            None => nodes.push(vec![function]),
        }
    }
    nodes.into_iter().try_fold(plan, |plan, node| Ok(LogicalPlan::Window(Window::try_new(node, Arc::new(plan))?)))
}
