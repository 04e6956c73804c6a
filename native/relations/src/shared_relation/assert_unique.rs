//! Asserts that the row numbers of a relation are unique.

use datafusion_common::tree_node::Transformed;
use datafusion_common::{Column, Result};
use datafusion_expr::{Expr, LogicalPlan};
use std::sync::Arc;

use super::relation::{SharedRelation, read_from};
use super::subplan_rewriter::each_rewritten;
use crate::vocabulary::names::{Names, under_names_of};
use crate::vocabulary::nodes::non_query_nodes;
use crate::vocabulary::origin::{Origin, origin};
use crate::vocabulary::work_table::source_column;

/// Wraps a plan in a check that each number in a column of `UInt64` occurs once when it is executed. The result has the
/// same columns, and is planned as one unit. A plan whose numbers are provably unique stays as it is.
///
/// ```text
/// Projection: a.∂row, cotangent          ->      TableScan: ∂cotangents                EXPLAIN shows UniqueRowsExec: row=∂row
///   Inner Join: a.∂row = b.∂row
/// ```
///
/// # Errors
/// If the plan has no such column.
pub fn each_row_once(plan: LogicalPlan, row: &Column, names: &mut Names) -> Result<LogicalPlan> {
    let schema = Arc::clone(plan.schema());
    let position = schema.index_of_column(row)?;
    if comes_once(&plan, position)? {
        return Ok(plan);
    }
    let relation = Arc::new(SharedRelation::unique_checked(names.part("cotangents"), plan, position));
    under_names_of(&schema, relation.scan()?)
}

/// Removes these checks from a plan and from the shared relations in it.
///
/// # Errors
/// If the plan cannot be put together again.
pub fn unchecked(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    each_rewritten(plan, &mut |plan| {
        plan.transform_up_with_subqueries(|node| {
            let LogicalPlan::TableScan(scan) = &node else { return Ok(Transformed::no(node)) };
            match SharedRelation::scanned(scan).filter(|relation| relation.is_read_once()) {
                Some(relation) => read_from(scan, relation.plan().clone()).map(Transformed::yes),
                None => Ok(Transformed::no(node)),
            }
        })
    })
}

/// Returns whether the values of a column are provably unique: it is the only key of groups, or numbers the rows of a
/// relation, below nodes that repeat no row.
fn comes_once(plan: &LogicalPlan, position: usize) -> Result<bool> {
    match plan {
        LogicalPlan::Aggregate(aggregate) => Ok(position == 0
            && aggregate.group_expr.len() == 1
            && !matches!(aggregate.group_expr[0], Expr::GroupingSet(_))),
        LogicalPlan::TableScan(scan) => match SharedRelation::scanned(scan) {
            Some(relation) if relation.is_read_once() => comes_once(relation.plan(), source_column(scan, position)),
            Some(relation) => {
                Ok(relation.is_numbered() && source_column(scan, position) + 1 == relation.columns().count())
            }
            None => Ok(false),
        },
        LogicalPlan::Projection(_) | LogicalPlan::Filter(_) | LogicalPlan::SubqueryAlias(_) | LogicalPlan::Sort(_) => {
            match (origin(plan, position)?, plan.inputs().as_slice()) {
                (Origin::Below(below), [input]) => match below.as_slice() {
                    [(_, below)] => comes_once(input, *below),
                    _ => Ok(false),
                },
                _ => Ok(false),
            }
        }
        // The others may repeat rows, or are not looked through.
        LogicalPlan::Window(_)
        | LogicalPlan::Join(_)
        | LogicalPlan::Repartition(_)
        | LogicalPlan::Union(_)
        | LogicalPlan::EmptyRelation(_)
        | LogicalPlan::Subquery(_)
        | LogicalPlan::Limit(_)
        | LogicalPlan::Values(_)
        | LogicalPlan::Distinct(_)
        | LogicalPlan::Unnest(_)
        | LogicalPlan::RecursiveQuery(_)
        | LogicalPlan::Extension(_)
        | non_query_nodes!() => Ok(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::physical::UniqueRowsExec;
    use crate::shared_relation::inline::inline_shared_relations;
    use arrow::array::RecordBatch;
    use arrow::util::pretty::pretty_format_batches;
    use datafusion::common::assert_contains;
    use datafusion::physical_plan::displayable;
    use datafusion::prelude::{DataFrame, SessionConfig, SessionContext};
    use datafusion_common::assert_batches_sorted_eq;

    fn session() -> SessionContext {
        SessionContext::new_with_config(SessionConfig::new().with_target_partitions(3))
    }

    /// Returns the plan of a statement with a column `row`, of which an execution checks that each number comes once.
    async fn checked(ctx: &SessionContext, sql: &str) -> Result<LogicalPlan> {
        let plan = ctx.sql(sql).await?.into_unoptimized_plan();
        each_row_once(plan, &Column::new_unqualified("row"), &mut Names::default())
    }

    async fn executed(ctx: &SessionContext, plan: LogicalPlan) -> Result<Vec<RecordBatch>> {
        DataFrame::new(ctx.state(), plan).collect().await
    }

    const TWICE: &str =
        "SELECT arrow_cast(a.value, 'UInt64') AS row, b.value AS c FROM range(0, 3) a CROSS JOIN range(0, 2) b";
    const ONCE: &str = "SELECT arrow_cast(a.value, 'UInt64') AS row, a.value * b.value AS c
                        FROM range(0, 3) a JOIN range(1, 9) b ON a.value + 1 = b.value";

    #[tokio::test]
    async fn a_row_that_a_join_repeats_is_an_error() -> Result<()> {
        let ctx = session();
        for sql in [TWICE, &format!("{ONCE} UNION ALL {ONCE}")] {
            let plan = checked(&ctx, sql).await?;
            let error = executed(&ctx, plan.clone()).await.expect_err("it comes twice").to_string();
            assert_contains!(error, "a gradient by row has two cotangents for one row, number");
            // Nor is it missed where nobody reads the numbers.
            let alone = DataFrame::new(ctx.state(), plan).select_columns(&["c"])?.into_unoptimized_plan();
            executed(&ctx, alone).await.expect_err("it comes twice");
        }
        Ok(())
    }

    #[tokio::test]
    async fn rows_that_come_once_pass_under_their_names() -> Result<()> {
        let ctx = session();
        let plan = checked(&ctx, ONCE).await?;
        let expected =
            ["+-----+---+", "| row | c |", "+-----+---+", "| 0   | 0 |", "| 1   | 2 |", "| 2   | 6 |", "+-----+---+"];
        assert_batches_sorted_eq!(expected, &executed(&ctx, plan.clone()).await?);
        let physical = DataFrame::new(ctx.state(), plan.clone()).create_physical_plan().await?;
        assert_contains!(displayable(physical.as_ref()).indent(false).to_string(), "UniqueRowsExec: row=row");
        // Without shared relations there is no such node.
        for plan in [inline_shared_relations(plan.clone())?.data, unchecked(plan)?.data] {
            assert!(!SharedRelation::is_scanned_in(&plan)?);
            let physical = DataFrame::new(ctx.state(), plan.clone()).create_physical_plan().await?;
            assert!(!displayable(physical.as_ref()).indent(false).to_string().contains("UniqueRowsExec"));
            assert_batches_sorted_eq!(expected, &executed(&ctx, plan).await?);
        }
        Ok(())
    }

    #[tokio::test]
    async fn what_comes_once_by_its_nodes_is_not_checked() -> Result<()> {
        let ctx = session();
        let grouped =
            format!("SELECT row, s + 1 AS s FROM (SELECT row, SUM(c) AS s FROM ({TWICE}) GROUP BY row) WHERE s > 0");
        let plan = checked(&ctx, &grouped).await?;
        assert!(!SharedRelation::is_scanned_in(&plan)?);
        let by_two = format!("SELECT row, SUM(c) AS s FROM ({TWICE}) GROUP BY row, c");
        assert!(SharedRelation::is_scanned_in(&checked(&ctx, &by_two).await?)?);
        let numbered = SharedRelation::numbered("r", ctx.sql(ONCE).await?.into_unoptimized_plan(), "number");
        let plan = Arc::new(numbered).scan()?;
        for (row, is_checked) in [("number", false), ("row", true)] {
            let plan = each_row_once(plan.clone(), &Column::new_unqualified(row), &mut Names::default())?;
            let names: Vec<_> = SharedRelation::scanned_by(plan.inputs().first().copied().unwrap_or(&plan))
                .map(|relation| relation.name().to_owned())
                .into_iter()
                .collect();
            assert_eq!(names == ["∂cotangents"], is_checked, "{row}");
        }
        Ok(())
    }

    /// Rebuilds the node: the values of parameters reach the plan, and the columns may be in any order.
    #[tokio::test]
    async fn parameters_are_handed_on() -> Result<()> {
        let ctx = session();
        let plan = checked(&ctx, &format!("SELECT row, c + $1 AS c FROM ({ONCE}) WHERE c > $2")).await?;
        let frame = DataFrame::new(ctx.state(), plan).select_columns(&["c", "row"])?;
        let frame = frame.with_param_values(vec![
            datafusion_common::ScalarValue::from(100_i64),
            datafusion_common::ScalarValue::from(0_i64),
        ])?;
        let shown =
            pretty_format_batches(&frame.sort_by(vec![datafusion_expr::col("row")])?.collect().await?)?.to_string();
        let expected =
            ["+-----+-----+", "| c   | row |", "+-----+-----+", "| 102 | 1   |", "| 106 | 2   |", "+-----+-----+"];
        assert_eq!(shown.lines().collect::<Vec<_>>(), expected);
        Ok(())
    }

    /// It is a small part of what the rows cost.
    #[tokio::test]
    async fn a_million_rows() -> Result<()> {
        let ctx = session();
        let sql = "SELECT arrow_cast(a.value, 'UInt64') AS row, sin(a.value) AS c FROM range(0, 1000000) a JOIN range(0, 1000000) b
                   ON a.value = b.value";
        let plan = checked(&ctx, sql).await?;
        let physical = DataFrame::new(ctx.state(), plan).create_physical_plan().await?;
        let mut unique = Arc::clone(&physical);
        while !unique.is::<UniqueRowsExec>() {
            unique = Arc::clone(unique.children()[0]);
        }
        let batches = datafusion::physical_plan::collect(physical, ctx.task_ctx()).await?;
        assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 1_000_000);
        let metrics = unique.metrics().unwrap_or_default();
        assert_eq!(metrics.output_rows(), Some(1_000_000));
        let taken = std::time::Duration::from_nanos(metrics.elapsed_compute().unwrap_or_default() as u64);
        println!("a million rows: {taken:?}");
        assert!(taken < std::time::Duration::from_secs(10), "{taken:?}");
        Ok(())
    }
}
