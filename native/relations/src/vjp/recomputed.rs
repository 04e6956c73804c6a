//! Replaces the shared relations of inner gradients by residuals.
//!
//! A sweep through an inner gradient recomputes the shared relations of that gradient, as residuals with further
//! columns. The inner gradient identifies rows by number, and a relation that is computed twice may number its rows
//! differently. So all readers of such a relation are made to read the residual.

use datafusion_common::Result;
use datafusion_common::tree_node::Transformed;
use datafusion_expr::LogicalPlan;
use std::sync::Arc;

use super::residuals::Residuals;
use crate::shared_relation::{Replaced, SharedRelation, read_from};
use crate::vocabulary::names::Names;

/// Rewrites a plan, and the shared relations that it scans, to read the residuals that replace relations.
///
/// ```text
/// Inner Join: h.∂of = ∂of #2                   Inner Join: h.∂of = ∂of #2
///   TableScan: ∂rows                     ->      TableScan: ∂rows #2
///   TableScan: ∂sums, reads ∂rows                TableScan: ∂sums, reads ∂rows #2
/// ```
///
/// # Errors
/// If the plan cannot be gone through.
pub fn read_recomputed(plan: LogicalPlan, residuals: &Residuals, names: &mut Names) -> Result<LogicalPlan> {
    if !residuals.has_recomputed() {
        return Ok(plan);
    }
    Ok(rewrite(plan, residuals, names, &mut Replaced::default())?.data)
}

#[recursive::recursive]
fn rewrite(
    plan: LogicalPlan,
    residuals: &Residuals,
    names: &mut Names,
    replaced: &mut Replaced,
) -> Result<Transformed<LogicalPlan>> {
    plan.transform_down_with_subqueries(|node| {
        let LogicalPlan::TableScan(scan) = &node else { return Ok(Transformed::no(node)) };
        let Some(relation) = SharedRelation::scanned(scan) else { return Ok(Transformed::no(node)) };
        if let Some(residual) = residuals.recomputed(&relation) {
            let width = relation.plan().schema().fields().len();
            return read_from(scan, residuals.numbered_rows(residual, width, names)?).map(Transformed::yes);
        }
        let other = replaced.by(&relation, |plan, replaced| rewrite(plan, residuals, names, replaced))?;
        if Arc::ptr_eq(&other, &relation) {
            return Ok(Transformed::no(node));
        }
        Ok(Transformed::yes(LogicalPlan::TableScan(other.scan_in_place_of(scan.clone()))))
    })
}
