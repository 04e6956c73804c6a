//! What there is in a node.

use datafusion_common::Result;
use datafusion_common::tree_node::TreeNodeRecursion;
use datafusion_expr::utils::grouping_set_to_exprlist;
use datafusion_expr::{Aggregate, Expr, LogicalPlan};

/// Whether an expression of a node itself has a subquery.
pub fn has_subquery(node: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    node.apply_subqueries(|_| {
        found = true;
        Ok(TreeNodeRecursion::Stop)
    })?;
    Ok(found)
}

/// Whether a plan or a subquery in it has such a node.
pub fn any_node(plan: &LogicalPlan, mut is: impl FnMut(&LogicalPlan) -> Result<bool>) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        found = is(node)?;
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

/// What computes each column of an aggregate: its keys, nothing for the number of the grouping set behind them, its functions.
pub fn computed(aggregate: &Aggregate) -> Result<Vec<Option<&Expr>>> {
    let Aggregate { group_expr, aggr_expr, schema, .. } = aggregate;
    let mut computed: Vec<_> = grouping_set_to_exprlist(group_expr)?.into_iter().map(Some).collect();
    computed.resize(schema.fields().len() - aggr_expr.len(), None);
    computed.extend(aggr_expr.iter().map(Some));
    Ok(computed)
}
