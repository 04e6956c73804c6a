//! Nodes that keep rows of their input, or order them, and have its columns: filters, and with them sorts, limits, repartitions and
//! subqueries.

use datafusion_common::Result;
use datafusion_expr::LogicalPlan;

use super::propagate::{Carried, NodeRequest, Propagation};

/// Carries tangents up a filter, an order or a limit: a row that is kept keeps its tangents. Which rows are kept is
/// taken as constant.
pub fn same_columns(carrier: &mut Propagation, plan: &LogicalPlan, requests: &[NodeRequest]) -> Result<Carried> {
    let asked = requests.iter().map(NodeRequest::passed_on).collect();
    let carried = carrier.carry(plan.inputs()[0].clone(), asked)?;
    let plan = plan.with_new_exprs(plan.expressions(), vec![carried.plan])?;
    Ok(Carried { plan, tangents: carried.tangents })
}
