//! Telling the differential operators among the functions of a session.

use datafusion_common::Result;
use datafusion_common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion_expr::{Expr, LogicalPlan, ScalarUDF};
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
