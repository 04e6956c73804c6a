//! Isolates the sums of products that a statement itself has, without a derivative.

use datafusion_common::Result;
use datafusion_common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion_expr::LogicalPlan;

use crate::vjp::{as_contraction, in_two_sides, isolate_contraction};
use crate::vocabulary::names::{Names, is_added, under_names_of};

/// Returns a plan whose own sums of products over joins are planned apart from what reads them, so that they are computed as arrays:
///
/// ```text
/// SELECT a.i, b.j, SUM(a.v * b.v) AS v FROM a JOIN b ON a.k = b.k GROUP BY a.i, b.j
/// ```
///
/// # Errors
/// If the plan cannot be put together again.
pub fn isolate_plain_contractions(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    // The plan of a shared relation is planned like a statement. Its sums are isolated already.
    if plan.schema().fields().iter().any(|field| is_added(field.name())) {
        return Ok(Transformed::no(plan));
    }
    let mut names = Names::from_plan(&plan)?;
    plan.transform_up_with_subqueries(|node| match &node {
        LogicalPlan::Aggregate(aggregate) if !reads_outside(&node)? => {
            let ordered = in_two_sides(aggregate)?;
            if as_contraction(ordered.as_ref().unwrap_or(aggregate)).is_none() {
                return Ok(Transformed::no(node));
            }
            let sums = ordered.map_or_else(|| node.clone(), LogicalPlan::Aggregate);
            Ok(Transformed::yes(under_names_of(node.schema(), isolate_contraction(sums, &mut names)?)?))
        }
        _ => Ok(Transformed::no(node)),
    })
}

/// Returns whether a plan reads columns of the query around it.
fn reads_outside(plan: &LogicalPlan) -> Result<bool> {
    let mut reads = false;
    plan.apply_with_subqueries(|node| {
        reads |= node.contains_outer_reference();
        Ok(if reads { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(reads)
}
