//! Detects plans that only this process can execute.

use datafusion_common::Result;
use datafusion_expr::LogicalPlan;

use super::relation::SharedRelation;
use crate::vocabulary::nodes::any_node;
use crate::vocabulary::observed::is_observed;

/// Returns whether a plan or a subquery in it reads a shared relation, or a work table with an observer.
///
/// # Errors
/// If the plan cannot be gone through.
pub fn is_computed_here(plan: &LogicalPlan) -> Result<bool> {
    any_node(plan, |node| Ok(SharedRelation::scanned_by(node).is_some() || is_observed(node)))
}
