//! Recognizes plans through which tangents in several directions are propagated together.

use datafusion_common::Result;
use datafusion_expr::LogicalPlan;

use crate::shared_relation::SharedRelation;
use crate::vocabulary::nodes::{has_subquery, non_query_nodes};

/// Returns whether a plan combines rows by aggregations alone, and reads neither subqueries nor shared relations. Then
/// all rows of a variable may move together.
#[recursive::recursive]
pub fn is_plain(plan: &LogicalPlan) -> Result<bool> {
    match plan {
        LogicalPlan::TableScan(scan) => return Ok(SharedRelation::scanned(scan).is_none()),
        LogicalPlan::Projection(_)
        | LogicalPlan::Aggregate(_)
        | LogicalPlan::SubqueryAlias(_)
        | LogicalPlan::Filter(_)
        | LogicalPlan::Sort(_)
        | LogicalPlan::Limit(_)
        | LogicalPlan::Join(_)
        | LogicalPlan::Values(_)
        | LogicalPlan::EmptyRelation(_) => {}
        LogicalPlan::Window(_)
        | LogicalPlan::Distinct(_)
        | LogicalPlan::Union(_)
        | LogicalPlan::Unnest(_)
        | LogicalPlan::RecursiveQuery(_)
        | LogicalPlan::Repartition(_)
        | LogicalPlan::Subquery(_)
        | LogicalPlan::Extension(_)
        | non_query_nodes!() => return Ok(false),
    }
    for input in plan.inputs() {
        if !is_plain(input)? {
            return Ok(false);
        }
    }
    Ok(!has_subquery(plan)? && !plan.contains_outer_reference())
}
