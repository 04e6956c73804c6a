//! Keeping the columns of recursive queries.
//!
//! DataFusion 54 removes columns of a recursive query that are not read outside of it, although its recursive term reads them,
//! and then fails (`project index 2 out of bounds`) or reads a wrong column. It is
//! <https://github.com/apache/datafusion/issues/22249>, which later versions have mended: with them, what is here goes.

use datafusion_common::Result;
use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_expr::{LogicalPlan, Partitioning, Repartition};
use std::sync::Arc;

use crate::vocabulary::names::columns;
use crate::vocabulary::nodes::any_node;

/// Puts above each recursive query a node that reads all of its columns and costs nothing: a partitioning by them into one
/// partition, which the planner of physical plans removes.
///
/// ```text
/// Projection: r.c                              Projection: r.c
///   SubqueryAlias: r                             SubqueryAlias: r
///     RecursiveQuery: is_distinct=false            Repartition: Hash(s, b, c) partition_count=1
///                                                    RecursiveQuery: is_distinct=false
/// ```
pub fn keep_recursive_columns(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    // Without such a query nothing is copied.
    let found = any_node(&plan, |node| Ok(matches!(node, LogicalPlan::RecursiveQuery(_))))?;
    if found { keep(plan, false) } else { Ok(Transformed::no(plan)) }
}

/// [`keep_recursive_columns`] below a node that may keep the columns of the plan already.
#[recursive::recursive]
fn keep(plan: LogicalPlan, kept: bool) -> Result<Transformed<LogicalPlan>> {
    let keeps = match &plan {
        LogicalPlan::Repartition(above) => above.partitioning_scheme == all_columns(&above.input),
        // One that DataFusion has pushed down.
        LogicalPlan::Filter(_) => kept,
        _ => false,
    };
    plan.map_subqueries(|subquery| keep(subquery, false))?
        .transform_data(|plan| plan.map_children(|child| keep(child, keeps)))?
        .transform_data(|plan| match plan {
            LogicalPlan::RecursiveQuery(_) if !kept => {
                let partitioning_scheme = all_columns(&plan);
                let above = Repartition { input: Arc::new(plan), partitioning_scheme };
                Ok(Transformed::yes(LogicalPlan::Repartition(above)))
            }
            other => Ok(Transformed::no(other)),
        })
}

fn all_columns(plan: &LogicalPlan) -> Partitioning {
    Partitioning::Hash(columns(plan.schema()), 1)
}

/// Returns whether a node keeps the columns of a recursive query. Rules of the optimizer may have put others in between, such as
/// a filter that they push down.
pub fn keeps_recursive_columns(node: &LogicalPlan) -> bool {
    let LogicalPlan::Repartition(Repartition { input, partitioning_scheme: Partitioning::Hash(_, 1) }) = node else {
        return false;
    };
    let mut below = input.as_ref();
    loop {
        below = match (below, below.inputs().as_slice()) {
            (LogicalPlan::RecursiveQuery(_), _) => return true,
            (_, [only]) => *only,
            _ => return false,
        };
    }
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionContext;
    use datafusion_common::Result;

    /// <https://github.com/apache/datafusion/issues/22249>
    #[tokio::test]
    async fn datafusion_removes_columns_of_recursive_queries_still() -> Result<()> {
        let sql =
            "WITH RECURSIVE t AS (SELECT 1 AS k, 10 AS v UNION ALL SELECT 2, 20 FROM t WHERE k = 1) SELECT v FROM t";
        let rows = SessionContext::new().sql(sql).await?.count().await.ok();
        assert_ne!(rows, Some(2), "the fault is gone: take this file away, and what it is called by");
        Ok(())
    }
}
