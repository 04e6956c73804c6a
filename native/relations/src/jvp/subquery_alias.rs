//! Relations under another name.

use datafusion_common::Result;
use datafusion_expr::{LogicalPlan, SubqueryAlias};
use std::sync::Arc;

use super::propagate::{NodeRequest, Propagation, WithTangents};

/// Propagates tangents through an alias. Like the columns, they are qualified by it.
pub fn subquery_alias(
    carrier: &mut Propagation,
    alias: SubqueryAlias,
    requests: &[NodeRequest],
) -> Result<WithTangents> {
    let asked = requests.iter().map(NodeRequest::passed_on).collect();
    let carried = carrier.carry(Arc::unwrap_or_clone(alias.input), asked)?;
    let tangents = carried.tangents.iter().map(|tangents| tangents.within(&alias.alias)).collect();
    let plan = SubqueryAlias::try_new(Arc::new(carried.plan), alias.alias)?;
    Ok(WithTangents { plan: LogicalPlan::SubqueryAlias(plan), tangents })
}
