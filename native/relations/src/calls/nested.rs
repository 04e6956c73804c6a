//! Detects derivatives of derivatives.

use datafusion_common::Result;
use datafusion_common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion_expr::LogicalPlan;
use std::collections::HashMap;
use std::sync::Arc;

use crate::shared_relation::SharedRelation;
use crate::vocabulary::operators::{Recognize, is_call};

/// Returns whether a plan takes derivatives of derivatives: a call in a call, or above one.
pub fn has_calls_of_calls(plan: &LogicalPlan, recognize: Recognize) -> Result<bool> {
    let mut found = false;
    has_calls_in(plan, recognize, &mut HashMap::new(), &mut found)?;
    Ok(found)
}

/// Returns whether a plan, a subquery or a shared relation in it has calls. Records whether one of them is above
/// another.
#[recursive::recursive]
fn has_calls_in(
    plan: &LogicalPlan,
    recognize: Recognize,
    known: &mut HashMap<*const SharedRelation, bool>,
    found: &mut bool,
) -> Result<bool> {
    if let Some(relation) = SharedRelation::scanned_by(plan) {
        if let Some(has_calls) = known.get(&Arc::as_ptr(&relation)) {
            return Ok(*has_calls);
        }
        let has_calls = has_calls_in(relation.plan(), recognize, known, found)?;
        known.insert(Arc::as_ptr(&relation), has_calls);
        return Ok(has_calls);
    }
    let mut below = false;
    for input in plan.inputs() {
        below |= has_calls_in(input, recognize, known, found)?;
    }
    plan.apply_subqueries(|query| {
        below |= has_calls_in(query, recognize, known, found)?;
        Ok(TreeNodeRecursion::Jump)
    })?;
    let (mut own, mut inside) = (false, false);
    plan.apply_expressions(|expr| {
        expr.apply(|part| {
            if is_call(part, recognize) {
                own = true;
                part.apply_children(|argument| {
                    inside |= argument.exists(|part| Ok(is_call(part, recognize)))?;
                    Ok(TreeNodeRecursion::Continue)
                })?;
            }
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    *found |= own && (below || inside);
    // A condition or an order passes no derivative on.
    Ok(below || own && !matches!(plan, LogicalPlan::Filter(_) | LogicalPlan::Sort(_) | LogicalPlan::Join(_)))
}
