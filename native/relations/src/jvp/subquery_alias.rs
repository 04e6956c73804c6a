//! Relations under another name.

use datafusion_common::Result;
use datafusion_expr::{LogicalPlan, SubqueryAlias};
use std::sync::Arc;

use super::propagate::{NodeRequest, Propagation, WithTangents};

/// Propagates tangents through an alias. Like the columns, they are qualified by it.
pub fn subquery_alias(
    propagation: &mut Propagation,
    alias: SubqueryAlias,
    requests: &[NodeRequest],
) -> Result<WithTangents> {
    let to_input = requests.iter().map(NodeRequest::passed_on).collect();
    let propagated = propagation.propagate(Arc::unwrap_or_clone(alias.input), to_input)?;
    let tangents = propagated.tangents.iter().map(|tangents| tangents.within(&alias.alias)).collect();
    let plan = SubqueryAlias::try_new(Arc::new(propagated.plan), alias.alias)?;
    Ok(WithTangents { plan: LogicalPlan::SubqueryAlias(plan), tangents })
}
