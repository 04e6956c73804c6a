//! Tangents of window functions.

use datafusion_common::{DFSchemaRef, Result, plan_err};
use datafusion_expr::{Expr, LogicalPlan, Projection, Window};
use std::collections::BTreeSet;
use std::sync::Arc;

use super::carrier::{Carried, Carrier, Reading, Variable};
use super::draws::Draws;
use crate::rows::arguments;
use crate::tangents::linearize::null_with_column;
use crate::tangents::tangent::{Linearized, Tangent};
use crate::vocabulary::expressions::unaliased;
use crate::vocabulary::names::{Names, columns};
use xql_autodiff::vocabulary::messages::abbreviated;

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
        let window_expr = window.window_expr.into_iter().map(|function| draws.function(function));
        let window_expr = window_expr.collect::<Result<Vec<_>>>()?;
        let input = draws.below(window.input)?;
        let Variable::Column(index) = variable else {
            return self.window_of_all_rows(&input, window_expr, &shown, variable, wanted);
        };
        match self.reading {
            Reading::Together => self.window_of_all_rows(&input, window_expr, &shown, variable, wanted),
            _ if !self.recursions.is_empty() => {
                self.window_of_iterations(&input, window_expr, &shown, variable, wanted)
            }
            Reading::OwnCell { .. } => {
                self.window_by_own_cell(Arc::unwrap_or_clone(input), window_expr, &shown, index, wanted)
            }
            Reading::WindowsFixed => self.fixed_window(&input, window_expr, &shown, variable, wanted),
        }
    }

    /// The window functions with all of their rows moving.
    fn window_of_all_rows(
        &mut self,
        input: &LogicalPlan,
        window_expr: Vec<Expr>,
        shown: &DFSchemaRef,
        variable: Variable,
        wanted: &BTreeSet<usize>,
    ) -> Result<Carried> {
        // What has been drawn stands behind the columns that the node had.
        let width = shown.fields().len() - window_expr.len();
        let mut below: BTreeSet<usize> = wanted.iter().copied().filter(|index| *index < width).collect();
        let functions: Vec<_> =
            wanted.iter().filter_map(|index| Some((*index, window_expr.get(index.checked_sub(width)?)?))).collect();
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
        let mut below = columns(carried.plan.schema());
        let width = below.len();
        for added in computed.iter_mut().skip(window_expr.len()) {
            over_columns(added, &mut below, self.names);
        }
        let input = if below.len() == width {
            carried.plan
        } else {
            LogicalPlan::Projection(Projection::try_new(below, Arc::new(carried.plan))?)
        };
        let plan = LogicalPlan::Window(Window::try_new(computed, Arc::new(input))?);
        if exprs.is_empty() {
            return Ok(Carried { plan, tangents });
        }
        exprs.splice(0..0, columns(plan.schema()));
        let plan = LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(plan))?);
        Ok(Carried { plan, tangents })
    }

    /// The columns of the input keep their tangents, and the functions stay as they are.
    fn fixed_window(
        &mut self,
        input: &LogicalPlan,
        window_expr: Vec<Expr>,
        shown: &DFSchemaRef,
        variable: Variable,
        wanted: &BTreeSet<usize>,
    ) -> Result<Carried> {
        let width = shown.fields().len() - window_expr.len();
        let below = wanted.iter().copied().filter(|index| *index < width).collect();
        let carried = self.carry(input.clone(), variable, &below)?;
        let plan = LogicalPlan::Window(Window::try_new(window_expr, Arc::new(carried.plan))?);
        Ok(Carried { plan, tangents: carried.tangents })
    }

    /// Functions of what varies over the rows of one iteration are refused: which cell these rows have is not carried along.
    fn window_of_iterations(
        &mut self,
        input: &LogicalPlan,
        window_expr: Vec<Expr>,
        shown: &DFSchemaRef,
        variable: Variable,
        wanted: &BTreeSet<usize>,
    ) -> Result<Carried> {
        let width = shown.fields().len() - window_expr.len();
        let functions = wanted.iter().filter_map(|index| window_expr.get(index.checked_sub(width)?));
        let read = functions.clone().flat_map(arguments);
        let needs = self.needs(input, variable, read)?;
        let carried = self.carry(input.clone(), variable, &needs)?;
        for function in functions {
            for argument in arguments(function) {
                if self.linearize(argument, input.schema(), &carried.tangents)? != Linearized::Known(Tangent::Zero) {
                    return plan_err!(
                        "{} in a recursive query varies with {} of the rows that it starts with, and the derivative by the row's own is \
                         not carried through iterations. Write jvp(..., {}, 1), in which all rows move",
                        abbreviated(function),
                        self.variable,
                        self.variable
                    );
                }
            }
        }
        self.fixed_window(input, window_expr, shown, variable, wanted)
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
        if !matches!(argument, Expr::Literal(..)) {
            *argument = Expr::Column(names.column(argument.clone(), below, |names| names.part(&name)));
        }
    }
}

/// A node for each partition and order that window functions have.
pub fn windows(plan: LogicalPlan, functions: Vec<Expr>) -> Result<LogicalPlan> {
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
