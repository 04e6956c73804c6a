//! Nodes that have the columns of their input, and some or all of its rows: filters, sorts, limits, repartitions and
//! subqueries.

use datafusion_common::Result;
use datafusion_expr::LogicalPlan;

use super::propagate::{NodeRequest, Propagation, WithTangents};

/// Propagates tangents through a filter, a sort or a limit. The rows that pass keep their tangents, and the condition
/// counts as constant.
pub fn same_columns(
    propagation: &mut Propagation,
    plan: &LogicalPlan,
    requests: &[NodeRequest],
) -> Result<WithTangents> {
    let to_input = requests.iter().map(NodeRequest::passed_on).collect();
    let propagated = propagation.propagate(plan.inputs()[0].clone(), to_input)?;
    let plan = plan.with_new_exprs(plan.expressions(), vec![propagated.plan])?;
    Ok(WithTangents { plan, tangents: propagated.tangents })
}
