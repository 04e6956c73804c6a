//! Registering with a session that other threads use.

use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::Expr;
use datafusion::optimizer::AnalyzerRule;
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion_proto::bytes::{logical_plan_from_bytes, logical_plan_to_bytes};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use xql_relations::DifferentiateRelations;

fn optimizers(state: &SessionState) -> Vec<String> {
    state.optimizers().iter().map(|rule| rule.name().to_owned()).collect()
}

fn analyzers(state: &SessionState) -> Vec<String> {
    state.analyzer().rules.iter().map(|rule| rule.name().to_owned()).collect()
}

/// What another thread sees of a session: whether it has the operators, and that it has all rules or none.
fn is_registered(state: &SessionState, stock: &[Vec<String>; 2]) -> bool {
    let [stock_analyzers, stock_optimizers] = stock;
    let differentiate = DifferentiateRelations::new();
    let analyzers = analyzers(state);
    let ours = [AnalyzerRule::name(&differentiate)].map(str::to_owned);
    if !state.scalar_functions().contains_key("grad") {
        assert_eq!((&analyzers, &optimizers(state)), (stock_analyzers, stock_optimizers));
        return false;
    }
    assert_eq!(analyzers, [stock_analyzers.as_slice(), &ours].concat());
    let last = ["nullable_recursive_columns", "eliminate_stop_gradient", "observe_recursion"].map(str::to_owned);
    assert_eq!(optimizers(state), [&ours, stock_optimizers.as_slice(), &last].concat());
    true
}

#[test]
fn other_threads_see_all_of_it_or_nothing() {
    for _ in 0..50 {
        let ctx = SessionContext::new();
        let stock = [analyzers(&ctx.state()), optimizers(&ctx.state())];
        let started = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !is_registered(&ctx.state(), &stock) {
                        started.store(true, Ordering::Release);
                    }
                });
            }
            // Two at once, of which one finds the rules there.
            for _ in 0..2 {
                scope.spawn(|| {
                    while !started.load(Ordering::Acquire) {
                        thread::yield_now();
                    }
                    xql_relations::register(&ctx);
                });
            }
        });
        assert!(is_registered(&ctx.state(), &stock));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn statements_of_other_threads_are_planned() -> Result<()> {
    let ctx = SessionContext::new();
    ctx.sql("CREATE TABLE t AS SELECT CAST(2 AS DOUBLE) AS x").await?.collect().await?;
    let mut queries = vec![];
    for _ in 0..4 {
        let ctx = ctx.clone();
        queries.push(tokio::spawn(async move {
            for _ in 0..50 {
                // Decorrelated by a rule of the optimizer, without which it is not executed.
                ctx.sql("SELECT x FROM t WHERE EXISTS (SELECT 1 FROM t AS u WHERE u.x = t.x)").await?.collect().await?;
            }
            Ok::<_, DataFusionError>(())
        }));
    }
    for _ in 0..50 {
        xql_relations::register(&ctx);
        tokio::task::yield_now().await;
    }
    for query in queries {
        query.await.expect("a query that does not panic")?;
    }
    Ok(())
}

#[tokio::test]
async fn a_session_keeps_what_it_had() -> Result<()> {
    let ctx = SessionContext::new();
    ctx.sql("PREPARE s AS SELECT 7.0 AS seven").await?;
    let id = ctx.session_id();
    xql_relations::register(&ctx);
    assert_eq!(ctx.session_id(), id);
    assert_eq!(ctx.state().session_id(), id);
    assert_eq!(ctx.sql("EXECUTE s").await?.count().await?, 1);
    Ok(())
}

/// The plan that is executed has functions of DataFusion alone, so that it can be sent to another process.
#[tokio::test]
async fn plans_have_functions_of_datafusion_alone() -> Result<()> {
    for passes in ["1", "3"] {
        let config = SessionConfig::new().set_str("datafusion.optimizer.max_passes", passes);
        let ctx = SessionContext::new_with_config(config);
        xql_relations::register(&ctx);
        ctx.sql("CREATE TABLE p (w DOUBLE NOT NULL, z DOUBLE) AS VALUES (2.0, 1.0), (3.0, NULL)").await?;
        for (sql, rows) in [
            (
                "WITH RECURSIVE r AS (
                   SELECT 0 AS s, w, ln(w) AS x, 1.0 AS y FROM p
                   UNION ALL SELECT s + 1, w, 0.5 * x, CASE WHEN s < 1 THEN y END FROM r WHERE s < 3)
                 SELECT grad(x * coalesce(y, x), w) AS d FROM r",
                8,
            ),
            // A column that is never NULL because of the test for NULL that its tangent has too.
            (
                "WITH RECURSIVE r AS (
                   SELECT 0 AS s, w, z, w AS a FROM p
                   UNION ALL SELECT s + 1, w, z, 0.5 * a + 0.3 * coalesce(z, w) FROM r WHERE s < 2)
                 SELECT z, AVG(a), grad(AVG(a), z) AS d FROM r GROUP BY w, z ORDER BY w",
                2,
            ),
            (
                "WITH RECURSIVE r AS (
                   SELECT 0 AS s, w, z, w AS a FROM p
                   UNION ALL SELECT s + 1, w, z, 0.5 * a + 0.3 * coalesce(z, w) FROM r WHERE s < 2)
                 SELECT z, AVG(a), AVG(d) FROM
                 (SELECT w, z, a, grad(a, z) AS d FROM r UNION ALL SELECT w, z, w AS a, 0.0 FROM p) AS u GROUP BY w, z",
                2,
            ),
        ] {
            let plan = ctx.sql(sql).await?.into_optimized_plan()?;
            let state = ctx.state();
            plan.apply_with_subqueries(|node| {
                node.apply_expressions(|expr| {
                    expr.apply(|part| {
                        if let Expr::ScalarFunction(call) = part {
                            let known = state.scalar_functions().get(call.func.name());
                            let own = known.is_some_and(|known| known == &call.func);
                            assert!(own && call.func.name() != "grad", "{part} in {}", plan.display_indent());
                        }
                        Ok(TreeNodeRecursion::Continue)
                    })
                })
            })?;
            assert_eq!(ctx.sql(sql).await?.count().await?, rows, "{sql}");
            let batches = ctx.sql(sql).await?.collect().await?;
            assert_eq!(batches.iter().map(|batch| batch.num_rows()).sum::<usize>(), rows, "{sql}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_plan_can_be_sent_to_a_process_without_the_operators() -> Result<()> {
    let ctx = SessionContext::new();
    xql_relations::register(&ctx);
    let sql = "WITH RECURSIVE r AS (
                 SELECT 0 AS s, w, 1.0 AS x, w AS y FROM (VALUES (2.0), (3.0)) AS t(w)
                 UNION ALL
                 SELECT s + 1, w, x * w, CASE WHEN s < 1 THEN y * w END FROM r WHERE s < 3)
               SELECT s, w, grad(x * coalesce(y, x), w) AS d FROM r ORDER BY s, w";
    let here = ctx.sql(sql).await?.collect().await?;
    let sent = logical_plan_to_bytes(&ctx.sql(sql).await?.into_optimized_plan()?)?;
    let other = SessionContext::new();
    let received = logical_plan_from_bytes(&sent, &other.task_ctx())?;
    let there = other.execute_logical_plan(received).await?.collect().await?;
    assert_eq!(pretty_format_batches(&there)?.to_string(), pretty_format_batches(&here)?.to_string());
    Ok(())
}
