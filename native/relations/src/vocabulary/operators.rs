//! Telling the differential operators among the functions of a session.

use datafusion_common::Result;
use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_expr::expr::ScalarFunction;
use datafusion_expr::{Expr, LogicalPlan, ScalarUDF};
use std::sync::Arc;
use xql_autodiff::Differential;

/// Tells the operators among the functions of a session.
pub type Recognize = fn(&ScalarUDF) -> Option<Differential>;

/// Whether an expression is a call of an operator.
pub fn is_call(expr: &Expr, recognize: Recognize) -> bool {
    matches!(expr, Expr::ScalarFunction(call) if recognize(&call.func).is_some())
}

/// Whether an expression of a node itself has a call of an operator.
pub fn has_call(node: &LogicalPlan, recognize: Recognize) -> Result<bool> {
    let mut found = false;
    node.apply_expressions(|expr| {
        found = expr.exists(|part| Ok(is_call(part, recognize)))?;
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

/// Whether a plan or a subquery in it has a call of an operator.
pub fn has_call_anywhere(plan: &LogicalPlan, recognize: Recognize) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        found = has_call(node, recognize)?;
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

/// The plan with the calls in it left to `simplify`: nobody recognizes them again, so that a plan tells whether it has been
/// analyzed.
pub fn left_to_simplify(plan: LogicalPlan, recognize: Recognize) -> Result<Transformed<LogicalPlan>> {
    plan.transform_up_with_subqueries(|node| {
        if !has_call(&node, recognize)? {
            return Ok(Transformed::no(node));
        }
        node.map_expressions(|expr| {
            expr.transform_up(|part| match part {
                Expr::ScalarFunction(ScalarFunction { func, args }) if recognize(&func).is_some() => {
                    // The same function in all it does, but of another type.
                    let other = Arc::unwrap_or_clone(func).with_aliases([]);
                    Ok(Transformed::yes(Expr::ScalarFunction(ScalarFunction::new_udf(Arc::new(other), args))))
                }
                other => Ok(Transformed::no(other)),
            })
        })
    })
}
