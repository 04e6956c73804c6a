//! Tangents of window functions.

use datafusion_common::Result;
use datafusion_expr::{Expr, LogicalPlan, Projection, Window};
use std::collections::BTreeSet;
use std::sync::Arc;

use super::carrier::{Carried, Carrier, Variable};
use super::draws::Draws;
use crate::rows::arguments;
use crate::tangents::linearize::null_with_column;
use crate::tangents::tangent::{Linearized, Tangent};
use crate::vocabulary::names::columns;

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
        let window_expr = &window_expr.collect::<Result<Vec<_>>>()?;
        let width = window.input.schema().fields().len();
        let input = &draws.below(window.input)?;
        let mut below: BTreeSet<usize> = wanted.iter().copied().filter(|index| *index < width).collect();
        let functions: Vec<_> =
            wanted.iter().filter_map(|index| Some((*index, window_expr.get(index.checked_sub(width)?)?))).collect();
        below.extend(self.needs(input, variable, functions.iter().flat_map(|(_, function)| arguments(function)))?);
        let carried = self.carry(input.as_ref().clone(), variable, &below)?;
        let mut tangents = carried.tangents.clone();
        let mut computed = window_expr.clone();
        let mut exprs = vec![];
        for (index, function) in functions {
            let tangent = match self.over_rows(input, &carried, &mut computed).tangent(function)? {
                Linearized::Derived(expr) => {
                    let field = shown.field(index);
                    let expr = null_with_column(expr, &shown, index)?;
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
            self.over_columns(added, &mut below);
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

    /// Lets a window function read columns of its own only, which are added to those that are computed below.
    ///
    /// Where two window functions over one window are equal, or become so when their arguments are simplified, DataFusion 54
    /// moves them to a projection, which it then cannot execute.
    fn over_columns(&mut self, function: &mut Expr, below: &mut Vec<Expr>) {
        let call = match function {
            Expr::Alias(alias) => alias.expr.as_mut(),
            other => other,
        };
        let Expr::WindowFunction(call) = call else { return };
        let name = format!("argument of {}", call.fun.name());
        for argument in &mut call.params.args {
            if !matches!(argument, Expr::Literal(..)) {
                *argument = Expr::Column(self.names.column(argument.clone(), below, |names| names.part(&name)));
            }
        }
    }
}
