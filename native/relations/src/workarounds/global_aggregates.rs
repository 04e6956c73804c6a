//! Conditions over aggregates without keys that turn out to read no column, as those on a derivative that is 0 by structure.
//!
//! DataFusion pushes a condition below an aggregate if all columns that it reads are keys, and so if it reads none. Without keys the
//! aggregate then still has its row, of no rows:
//!
//! ```sql
//! SELECT n FROM (SELECT n, 0.0 AS d FROM (SELECT COUNT(*) AS n FROM t)) WHERE d <> 0      -- is 0 and not empty
//! SELECT n FROM (SELECT COUNT(*) AS n FROM t) CROSS JOIN w WHERE grad(n, w.val) <> 0
//! ```
//!
//! DataFusion has no issue of it. Spark had: <https://github.com/apache/spark/pull/20180>.

use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_common::{Column, Result};
use datafusion_expr::{Expr, Limit, LogicalPlan, lit};
use std::sync::Arc;

use crate::vocabulary::operators::Operators;

/// Keeps conditions on derivatives above aggregates without keys.
///
/// ```text
/// Filter: grad(h.n, w.val) != 0                        Filter: grad(h.n, w.val) != 0
///   Cross Join:                                          Cross Join:
///     Aggregate: groupBy=[[]], aggr=[[count(*)]]  ->       Limit: fetch=1
///       ...                                                  Aggregate: groupBy=[[]], aggr=[[count(*)]]
///     TableScan: w                                         ...
/// ```
pub fn conditions_above_aggregates(plan: LogicalPlan, operators: &Operators) -> Result<Transformed<LogicalPlan>> {
    plan.transform_down_with_subqueries(|node| {
        let condition = match &node {
            LogicalPlan::Filter(filter) => Some(&filter.predicate),
            LogicalPlan::Join(join) => join.filter.as_ref(),
            _ => None,
        };
        let Some(condition) = condition else { return Ok(Transformed::no(node)) };
        let mut reads = false;
        for input in node.inputs() {
            reads = reads || reads_call(condition, input, operators)?;
        }
        if !reads {
            return Ok(Transformed::no(node));
        }
        let is_global =
            |node: &LogicalPlan| matches!(node, LogicalPlan::Aggregate(found) if found.group_expr.is_empty());
        node.map_children(|input| {
            input.transform_down(|below| match below {
                // It has a limit already.
                LogicalPlan::Limit(_) => Ok(Transformed::new(below, false, TreeNodeRecursion::Jump)),
                below if is_global(&below) => {
                    let limit = Limit { skip: None, fetch: Some(Box::new(lit(1_i64))), input: Arc::new(below) };
                    Ok(Transformed::new(LogicalPlan::Limit(limit), true, TreeNodeRecursion::Jump))
                }
                below => Ok(Transformed::no(below)),
            })
        })
    })
}

/// Returns whether an expression over a plan calls an operator, or reads a column that does.
fn reads_call(expr: &Expr, plan: &LogicalPlan, operators: &Operators) -> Result<bool> {
    let mut reads = expr.exists(|part| Ok(operators.called_by(part).is_some()))?;
    for column in expr.column_refs() {
        reads = reads || is_computed_by_call(column, plan, operators)?;
    }
    Ok(reads)
}

/// Returns whether a column of a plan is computed by an operator in one of the projections of which it is a stack.
fn is_computed_by_call(column: &Column, plan: &LogicalPlan, operators: &Operators) -> Result<bool> {
    let Some(index) = plan.schema().maybe_index_of_column(column) else { return Ok(false) };
    match plan {
        LogicalPlan::Projection(projection) => reads_call(&projection.expr[index], &projection.input, operators),
        LogicalPlan::SubqueryAlias(alias) => {
            is_computed_by_call(&Column::from(alias.input.schema().qualified_field(index)), &alias.input, operators)
        }
        LogicalPlan::Filter(_) | LogicalPlan::Sort(_) | LogicalPlan::Join(_) => {
            let mut is_computed = false;
            for input in plan.inputs() {
                is_computed = is_computed || is_computed_by_call(column, input, operators)?;
            }
            Ok(is_computed)
        }
        _ => Ok(false),
    }
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionContext;
    use datafusion_common::Result;

    #[tokio::test]
    async fn datafusion_pushes_a_condition_below_its_aggregate_still() -> Result<()> {
        let ctx = SessionContext::new();
        ctx.sql("CREATE TABLE t (x DOUBLE) AS VALUES (1.0), (2.0)").await?.collect().await?;
        let sql = "SELECT n FROM (SELECT n, 0.0 AS d FROM (SELECT COUNT(*) AS n FROM t)) WHERE d <> 0";
        let rows = ctx.sql(sql).await?.collect().await?.iter().map(|batch| batch.num_rows()).sum::<usize>();
        assert_eq!(rows, 1, "the fault is gone: take this file away, and what it is called by");
        Ok(())
    }
}
