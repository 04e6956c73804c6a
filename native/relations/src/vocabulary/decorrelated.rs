//! Correlated scalar subqueries that have been taken apart as joins.
//!
//! Such a join looks like one that the user wrote, but for the name of its right side. What the user joins is another reference to a
//! relation; a subquery is not, so that it varies with the rows of the variable.
//!
//! ```text
//! Projection: (SELECT sum(b.val) FROM m AS b WHERE b.g = m.g) * m.val
//!   TableScan: m
//! ->
//! Projection: __scalar_sq_1.sum(b.val) * m.val
//!   Left Join: __scalar_sq_1.g = m.g
//!     TableScan: m
//!     SubqueryAlias: __scalar_sq_1
//!       Projection: sum(b.val), b.g
//!         Aggregate: groupBy=[[b.g]], aggr=[[sum(b.val)]]
//! ```

use datafusion_common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion_common::{JoinType, Result};
use datafusion_expr::{Expr, Join, LogicalPlan, SubqueryAlias};
use xql_autodiff::vocabulary::columns::columns_followed;
use xql_autodiff::vocabulary::functions::stop_gradient_argument;

use super::identity::{NameKind, kind_of};

/// How the names begin that DataFusion's rule `scalar_subquery_to_join` gives.
const PREFIX: &str = "__scalar_sq_";

/// Returns the subquery that the right side of a join was.
pub fn decorrelated(join: &Join) -> Option<&SubqueryAlias> {
    match join.right.as_ref() {
        LogicalPlan::SubqueryAlias(alias) => {
            let is_named_so = join.join_type == JoinType::Left && alias.alias.table().starts_with(PREFIX);
            // A derived table may have such a name too.
            (is_named_so && kind_of(&alias.alias) != Some(NameKind::Derived)).then_some(alias)
        }
        _ => None,
    }
}

/// Returns the subqueries of the node above a plan that have been put beside the plan's rows.
pub fn decorrelated_beside(mut plan: &LogicalPlan) -> Vec<&SubqueryAlias> {
    let mut found = vec![];
    while let LogicalPlan::Join(join) = plan
        && let Some(alias) = decorrelated(join)
    {
        found.push(alias);
        plan = &join.left;
    }
    found
}

/// Returns the scalar subqueries that an expression reads, but for those that it stops.
pub fn subqueries_read(expression: &Expr) -> Result<Vec<&LogicalPlan>> {
    let mut queries: Vec<&LogicalPlan> = vec![];
    expression.apply(|part| {
        match part {
            Expr::ScalarSubquery(subquery) => queries.push(&subquery.subquery),
            part if stop_gradient_argument(part).is_some() => return Ok(TreeNodeRecursion::Jump),
            _ => {}
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(queries)
}

/// Returns the queries that an expression over a plan reads: its scalar subqueries, and those that have been taken apart.
pub fn queries_read<'p>(expression: &'p Expr, input: &'p LogicalPlan) -> Result<Vec<&'p LogicalPlan>> {
    let mut queries = subqueries_read(expression)?;
    let read = columns_followed(expression);
    let is_read = |alias: &&SubqueryAlias| read.iter().any(|column| column.relation.as_ref() == Some(&alias.alias));
    queries.extend(decorrelated_beside(input).into_iter().filter(is_read).map(|alias| alias.input.as_ref()));
    Ok(queries)
}
