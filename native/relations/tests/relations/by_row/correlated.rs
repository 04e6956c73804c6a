//! Correlated subqueries, written as such and taken apart before the rule sees the plan, as in sessions of another library.

use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::decorrelate_lateral_join::DecorrelateLateralJoin;
use datafusion::optimizer::decorrelate_predicate_subquery::DecorrelatePredicateSubquery;
use datafusion::optimizer::scalar_subquery_to_join::ScalarSubqueryToJoin;
use datafusion::optimizer::{Analyzer, Optimizer, OptimizerContext};
use datafusion::prelude::SessionContext;
use std::sync::Arc;

use crate::differences::assert_close as close;
use crate::session::{last_of, session};

const TABLES: [&str; 2] = [
    "CREATE TABLE m AS SELECT * FROM (VALUES (1, 0, 1.0, 0.5), (2, 0, 2.0, -1.5), (3, 1, 4.0, 2.0)) AS t(k, g, x, val)",
    "CREATE TABLE y AS SELECT * FROM (VALUES (1, 1.0), (2, 3.0), (4, 5.0)) AS t(k, y)",
];

/// The plan of a statement as such a session gives it, with its subqueries decorrelated.
async fn decorrelate(ctx: &SessionContext, sql: &str) -> Result<LogicalPlan> {
    let plan = ctx.sql(sql).await?.into_unoptimized_plan();
    let plan = Analyzer::new().execute_and_check(plan, &ConfigOptions::new(), |_, _| {})?;
    let rules = Optimizer::with_rules(vec![
        Arc::new(DecorrelatePredicateSubquery::new()),
        Arc::new(ScalarSubqueryToJoin::new()),
        Arc::new(DecorrelateLateralJoin::new()),
    ]);
    rules.optimize(plan, &OptimizerContext::new(), |_, _| {})
}

/// The last column of a statement, both ways.
async fn both(ctx: &SessionContext, sql: &str) -> Result<[Vec<Option<f64>>; 2]> {
    let frames = [ctx.sql(sql).await?, ctx.execute_logical_plan(decorrelate(ctx, sql).await?).await?];
    let [written, apart] = frames;
    Ok([last_of(&written.collect().await?)?, last_of(&apart.collect().await?)?])
}

#[tokio::test]
async fn the_row_itself_counts() -> Result<()> {
    let ctx = session(TABLES).await?;
    for (value, expected) in [
        ("SUM(b.val * b.val) FROM m b WHERE b.g = m.g", [3.0, 7.0, 12.0]),
        ("MAX(b.val) FROM m b WHERE b.g = m.g", [1.0, 0.5, 4.0]),
        ("SUM(b.val * b.val) FROM m b WHERE b.k = m.k", [0.75, 6.75, 12.0]),
        ("coalesce(SUM(b.val * b.val), 0) FROM m b WHERE b.k = m.k + 1", [2.25, 4.0, 0.0]),
        ("COUNT(*) FROM m b WHERE b.g = m.g", [2.0, 2.0, 1.0]),
        ("SUM(b.x) FROM m b WHERE b.g = m.g", [3.0, 3.0, 4.0]),
        (
            "SUM(b.val * b.y) FROM (SELECT m.g, m.val, y.y FROM m JOIN y ON m.k = y.k) b WHERE b.g = m.g",
            [-3.5, -8.5, 0.0],
        ),
    ] {
        let sql = format!("SELECT k, grad(coalesce((SELECT {value}), 0) * val, val) AS d FROM m ORDER BY k");
        for found in both(&ctx, &sql).await? {
            close(&found, &expected);
        }
    }
    Ok(())
}

#[tokio::test]
async fn in_another_subquery_and_along_a_direction() -> Result<()> {
    let ctx = session(TABLES).await?;
    for (sql, expected) in [
        (
            "SELECT grad((SELECT SUM(p.val * p.val) FROM m p WHERE p.k = (SELECT MAX(q.k) FROM m q WHERE q.g = p.g)), val)
             AS d FROM m ORDER BY k",
            [0.0, -3.0, 4.0],
        ),
        (
            "SELECT jvp((SELECT SUM(b.val * b.val) FROM m b WHERE b.g = m.g) * val, val, 1.0) AS d FROM m ORDER BY k",
            [1.5, 5.5, 12.0],
        ),
        (
            "SELECT grad((SELECT SUM(b.val * s) FROM (SELECT g, val, (SELECT SUM(c.val) FROM m c WHERE c.g = a.g) AS s FROM m a) b
             WHERE b.g = m.g), val) AS d FROM m ORDER BY k",
            [-2.0, -2.0, 4.0],
        ),
    ] {
        for found in both(&ctx, sql).await? {
            close(&found, &expected);
        }
    }
    Ok(())
}

/// A column of a query below has the value of a subquery: it is another expression that it may vary with.
#[tokio::test]
async fn below_the_call() -> Result<()> {
    let ctx = session(TABLES).await?;
    let below = |value: &str| {
        format!(
            "WITH q AS (SELECT k, val, (SELECT {value} FROM m b WHERE b.g = m.g) AS s FROM m)
             SELECT grad(s * val, val) AS d FROM q ORDER BY k"
        )
    };
    for value in ["SUM(b.val)", "MAX(b.val * b.x)", "VAR_POP(b.val)"] {
        for plan in [ctx.sql(&below(value)).await?.into_unoptimized_plan(), decorrelate(&ctx, &below(value)).await?] {
            let error = ctx.execute_logical_plan(plan).await?.create_physical_plan().await.err();
            let error = error.map(|error| error.to_string()).unwrap_or_default();
            assert!(error.contains("in place of the column"), "{error}");
        }
    }
    for (value, expected) in [("SUM(b.x)", [3.0, 3.0, 4.0]), ("COUNT(*)", [2.0, 2.0, 1.0])] {
        for found in both(&ctx, &below(value)).await? {
            close(&found, &expected);
        }
    }
    Ok(())
}
