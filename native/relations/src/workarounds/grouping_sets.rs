//! Functions over grouping sets.
//!
//! Of two functions that are equal, DataFusion 54 computes one. Over grouping sets it loses the number of the set on the way, and
//! fails (`No field named __grouping_id`). It is <https://github.com/apache/datafusion/issues/24143>, which later versions have mended:
//! with them, what is here goes. A derivative adds functions that may be equal to others once they are simplified:
//!
//! ```sql
//! SELECT g, sum(x), grad(sum(w * x), w) FROM t GROUP BY w, ROLLUP (g)  -- the derivative is sum(x) as well
//! ```

use datafusion_common::tree_node::Transformed;
use datafusion_common::{Column, Result};
use datafusion_expr::{Aggregate, Expr, LogicalPlan};
use std::sync::Arc;

use crate::vocabulary::names::{Names, is_added, with_columns};
use crate::vocabulary::nodes::any_node;

/// Gives each function that a derivative has added over grouping sets a column of its own to read, so that it is equal to none.
///
/// ```text
/// Aggregate: groupBy=[[GROUPING SETS ((g, w), (w))]], aggr=[[sum(x), sum(jvp(w * x, w, 1)) AS ∂sum]]
///   TableScan: t
/// ```
///
/// becomes
///
/// ```text
/// Aggregate: groupBy=[[GROUPING SETS ((g, w), (w))]], aggr=[[sum(x), sum(∂argument) AS ∂sum]]
///   Projection: g, w, x, jvp(w * x, w, 1) AS ∂argument
///     TableScan: t
/// ```
///
/// The functions of the statement itself stay as they are, for those that are equal fail without a derivative too.
pub fn unequal_over_grouping_sets(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    // Without such functions nothing is copied.
    if !any_node(&plan, |node| Ok(matches!(node, LogicalPlan::Aggregate(node) if has_added(node))))? {
        return Ok(Transformed::no(plan));
    }
    let mut names = Names::from_plan(&plan)?;
    plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::Aggregate(aggregate) if has_added(&aggregate) => {
            let Aggregate { input, group_expr, aggr_expr, schema, .. } = aggregate;
            let mut read = vec![];
            let functions = aggr_expr.into_iter();
            let functions = functions
                .map(|function| if added(&function) { unequal(function, &mut names, &mut read) } else { function });
            let functions = functions.collect();
            let input = Arc::new(with_columns(Arc::unwrap_or_clone(input), read)?);
            let aggregate = Aggregate::try_new_with_schema(input, group_expr, functions, schema)?;
            Ok(Transformed::yes(LogicalPlan::Aggregate(aggregate)))
        }
        node => Ok(Transformed::no(node)),
    })
}

/// Returns whether an aggregate over grouping sets has a function that a derivative has added.
fn has_added(aggregate: &Aggregate) -> bool {
    matches!(aggregate.group_expr.as_slice(), [Expr::GroupingSet(_)]) && aggregate.aggr_expr.iter().any(added)
}

fn added(function: &Expr) -> bool {
    matches!(function, Expr::Alias(alias) if is_added(&alias.name))
}

/// Returns the function with a column in the place of its condition, or of its first argument. An argument beside a condition
/// may fail on rows that the condition leaves out.
fn unequal(function: Expr, names: &mut Names, read: &mut Vec<Expr>) -> Expr {
    match function {
        Expr::Alias(mut alias) => {
            *alias.expr = unequal(*alias.expr, names, read);
            Expr::Alias(alias)
        }
        Expr::AggregateFunction(mut call) => {
            let (part, what) = match (&mut call.params.filter, call.params.args.first_mut()) {
                (Some(condition), _) => (Some(condition.as_mut()), "condition"),
                (None, argument) => (argument, "argument"),
            };
            if let Some(part) = part {
                let name = names.part(what);
                let column = Expr::Column(Column::new_unqualified(name.clone()));
                read.push(std::mem::replace(part, column).alias(name));
            }
            Expr::AggregateFunction(call)
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionContext;
    use datafusion_common::{Result, assert_contains};

    /// <https://github.com/apache/datafusion/issues/24143>
    #[tokio::test]
    async fn datafusion_loses_the_number_of_the_grouping_set_still() -> Result<()> {
        let ctx = SessionContext::new();
        ctx.sql("CREATE TABLE t AS VALUES (1, 2), (2, 3)").await?.collect().await?;
        let sql = "SELECT column1, sum(column2), sum(column2 * 1) FROM t GROUP BY ROLLUP (column1)";
        let planned = ctx.sql(sql).await?.into_optimized_plan();
        let error = planned.expect_err("the fault is gone: take this file away, and what it is called by");
        assert_contains!(error.to_string(), "__grouping_id");
        Ok(())
    }
}
