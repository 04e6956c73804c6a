//! Registering with a session that other threads use.

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::Expr;
use datafusion::optimizer::AnalyzerRule;
use datafusion::prelude::SessionContext;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use xql_relations::{DifferentiateRelations, KeepRecursiveColumns};

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
    let ours = [AnalyzerRule::name(&differentiate), AnalyzerRule::name(&KeepRecursiveColumns)].map(str::to_owned);
    if !state.scalar_functions().contains_key("grad") {
        assert_eq!((&analyzers, &optimizers(state)), (stock_analyzers, stock_optimizers));
        return false;
    }
    assert_eq!(analyzers, [stock_analyzers.as_slice(), &ours].concat());
    assert_eq!(optimizers(state), [&ours, stock_optimizers.as_slice()].concat());
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
    let ctx = SessionContext::new();
    xql_relations::register(&ctx);
    ctx.sql("CREATE TABLE p AS SELECT CAST(2 AS DOUBLE) AS w, CAST(NULL AS DOUBLE) AS z").await?.collect().await?;
    for sql in [
        "WITH RECURSIVE r AS (
           SELECT 0 AS s, w, ln(w) AS x, 1.0 AS y FROM p
           UNION ALL SELECT s + 1, w, 0.5 * x, CASE WHEN s < 1 THEN y END FROM r WHERE s < 3)
         SELECT grad(x * coalesce(y, x), w) AS d FROM r",
        "WITH RECURSIVE r AS (
           SELECT 0 AS s, w, z, w AS a FROM p
           UNION ALL SELECT s + 1, w, z, 0.5 * a + 0.3 * coalesce(z, w) FROM r WHERE s < 3)
         SELECT grad(a, w) AS d FROM r",
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
        ctx.sql(sql).await?.collect().await?;
    }
    Ok(())
}
