//! Telling the differential operators among the functions of a session.

use datafusion_common::Result;
use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_expr::expr::ScalarFunction;
use datafusion_expr::{Expr, LogicalPlan, ScalarUDF};
use std::sync::Arc;
use xql_autodiff::Differential;
use xql_autodiff::vocabulary::transform::Transform;

use super::nodes::any_part;

/// Tells the operators among the functions of a session.
pub type Recognize = fn(&ScalarUDF) -> Option<Differential>;

/// The operators that a plan calls, and the `jvp` by which the analyzer rule replaces their calls.
#[derive(Debug)]
pub struct Operators {
    recognize: Recognize,
    tangents: Vec<Arc<ScalarUDF>>,
}

impl Operators {
    /// Creates the operators that a plan calls.
    pub fn from_plan(plan: &LogicalPlan, recognize: Recognize) -> Result<Self> {
        let mut operators = Self { recognize, tangents: vec![] };
        operators.extend(plan)?;
        Ok(operators)
    }

    /// Adds those that another plan calls.
    pub fn extend(&mut self, plan: &LogicalPlan) -> Result<()> {
        let Self { recognize, tangents } = self;
        plan.apply_with_subqueries(|node| {
            node.apply_expressions(|expr| {
                expr.apply(|part| {
                    if let Expr::ScalarFunction(call) = part
                        && let Some(operator) = recognize(&call.func)
                        && !tangents.contains(&operator.tangent)
                    {
                        tangents.push(operator.tangent);
                    }
                    Ok(TreeNodeRecursion::Continue)
                })
            })
        })?;
        Ok(())
    }

    /// Returns whether it calls none.
    pub fn is_empty(&self) -> bool {
        self.tangents.is_empty()
    }

    /// Returns the number of the operator that an expression calls, and what it makes of its function.
    pub fn called_by(&self, expr: &Expr) -> Option<(usize, Transform)> {
        let Expr::ScalarFunction(call) = expr else { return None };
        let number = |tangent: &Arc<ScalarUDF>| {
            let same = |known: &Arc<ScalarUDF>| Arc::ptr_eq(known, tangent) || known == tangent;
            self.tangents.iter().position(same)
        };
        if let Some(operator) = (self.recognize)(&call.func) {
            return Some((number(&operator.tangent)?, Transform::from_key(call.func.name())?));
        }
        if call.func.name() != Transform::Tangent.name() {
            return None;
        }
        Some((number(&call.func)?, Transform::Tangent))
    }

    /// Returns the `jvp` of an operator.
    pub fn tangent(&self, operator: usize) -> &Arc<ScalarUDF> {
        &self.tangents[operator]
    }

    /// Returns whether an expression of a node itself calls one of them.
    pub fn have_call_in(&self, node: &LogicalPlan) -> Result<bool> {
        any_part(node, |part| self.called_by(part).is_some())
    }
}

/// Returns whether an expression is a call of an operator.
pub fn is_call(expr: &Expr, recognize: Recognize) -> bool {
    matches!(expr, Expr::ScalarFunction(call) if recognize(&call.func).is_some())
}

/// Returns whether an expression of a node itself has a call of an operator.
pub fn has_call(node: &LogicalPlan, recognize: Recognize) -> Result<bool> {
    any_part(node, |part| is_call(part, recognize))
}

/// Returns the plan with the calls in it left to `simplify`, as calls of operators that know that the rule has passed. Nobody
/// recognizes these, so that a plan tells whether it has been analyzed. Nodes of others, which the rule has not looked into, stay
/// as they are.
pub fn left_to_simplify(plan: LogicalPlan, recognize: Recognize) -> Result<Transformed<LogicalPlan>> {
    plan.transform_up_with_subqueries(|node| {
        if matches!(node, LogicalPlan::Extension(_)) || !has_call(&node, recognize)? {
            return Ok(Transformed::no(node));
        }
        node.map_expressions(|expr| {
            expr.transform_up(|part| {
                let Expr::ScalarFunction(ScalarFunction { func, args }) = part else {
                    return Ok(Transformed::no(part));
                };
                Ok(match recognize(&func) {
                    Some(operator) => {
                        Transformed::yes(Expr::ScalarFunction(ScalarFunction::new_udf(operator.analyzed, args)))
                    }
                    None => Transformed::no(Expr::ScalarFunction(ScalarFunction { func, args })),
                })
            })
        })
    })
}
