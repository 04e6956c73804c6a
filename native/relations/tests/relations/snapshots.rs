//! Plans before and after the rule, for every kind of node.
//!
//! `INSTA_UPDATE=always cargo test --workspace --test relations snapshots` writes them anew.

use datafusion::error::Result;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::{LogicalPlan, Statement};
use datafusion::optimizer::{Analyzer, AnalyzerRule, OptimizerContext, OptimizerRule};
use datafusion::prelude::{SessionConfig, SessionContext};
use std::sync::Arc;
use xql_relations::DifferentiateRelations;

use crate::session::session_of;

async fn tables() -> Result<SessionContext> {
    let config = SessionConfig::new().with_target_partitions(1);
    session_of(
        config,
        [
            "CREATE TABLE p (w DOUBLE NOT NULL, b DOUBLE NOT NULL)",
            "CREATE TABLE d (id INT NOT NULL, g VARCHAR NOT NULL, x DOUBLE NOT NULL, y DOUBLE NOT NULL, z DOUBLE)",
            "CREATE TABLE l (w DOUBLE NOT NULL, v DOUBLE[] NOT NULL)",
        ],
    )
    .await
}

/// The rules of a session's analyzer that stand before those of this crate.
fn stock(state: &SessionState) -> Analyzer {
    let rules = state.analyzer().rules.iter();
    let stock = rules.take_while(|rule| rule.name() != AnalyzerRule::name(&DifferentiateRelations::new()));
    Analyzer::with_rules(stock.map(Arc::clone).collect())
}

/// A statement with its plan before and after the rules of this crate.
///
/// Whoever runs them once more finds nothing to do: so they can tell a plan that has been analyzed from one that has not.
async fn before_and_after(sql: &str) -> Result<String> {
    let ctx = tables().await?;
    let state = ctx.state();
    let before = match state.create_logical_plan(sql).await? {
        // Not analyzed.
        LogicalPlan::Statement(Statement::Prepare(prepare)) => Arc::unwrap_or_clone(prepare.input),
        plan => stock(&state).execute_and_check(plan, state.config_options(), |_, _| ())?,
    };
    let context = OptimizerContext::new();
    let rewrite = |plan: LogicalPlan| DifferentiateRelations::new().rewrite(plan, &context);
    let after = rewrite(before.clone())?;
    assert_eq!(after.transformed, after.data != before, "whether the rule has changed {sql}");
    assert_eq!(names(&after.data), names(&before), "the columns of {sql}");
    let again = rewrite(after.data.clone())?;
    assert!(!again.transformed, "{sql} once more is\n{}", again.data.display_indent());
    let sql: Vec<_> = sql.lines().map(str::trim).collect();
    let (before, after) = (before.display_indent(), after.data.display_indent());
    Ok(format!("{}\n\n-- before\n{before}\n\n-- after\n{after}", sql.join("\n")))
}

fn names(plan: &LogicalPlan) -> Vec<String> {
    plan.schema().columns().iter().map(ToString::to_string).collect()
}

async fn snapshots(of: &[(&str, &str)]) -> Result<()> {
    for (name, sql) in of {
        let plans = before_and_after(sql).await?;
        insta::with_settings!({omit_expression => true, prepend_module_to_snapshot => false}, {
            insta::assert_snapshot!(*name, plans);
        });
    }
    Ok(())
}

#[tokio::test]
async fn without_a_call() -> Result<()> {
    snapshots(&[
        ("untouched", "SELECT x * y AS d FROM d WHERE x > 0 ORDER BY y LIMIT 3"),
        (
            "untouched_recursion",
            "WITH RECURSIVE r AS (
             SELECT 1 AS s, 1.0 AS x UNION ALL SELECT s + 1, CASE WHEN s < 2 THEN 2.0 * x END FROM r WHERE s < 3)
             SELECT s FROM r",
        ),
    ])
    .await
}

#[tokio::test]
async fn jacobians() -> Result<()> {
    snapshots(&[
        (
            "jacobian",
            "SELECT h.g, d.id, grad(h.s, d.x) AS j FROM (SELECT g, SUM(x * x) AS s FROM d GROUP BY g) AS h, d",
        ),
        (
            "jacobian_of_pairs",
            "SELECT h.g, d.id, grad(h.s, d.x) AS j FROM (SELECT g, SUM(x * x) AS s FROM d GROUP BY g) AS h
             CROSS JOIN d WHERE grad(h.s, d.x) <> 0",
        ),
    ])
    .await
}

#[tokio::test]
async fn projections() -> Result<()> {
    snapshots(&[
        ("projection_local", "SELECT grad(x * y, x) AS d FROM d"),
        (
            "projection",
            "WITH m AS (SELECT y, w, w * x + b AS pred FROM d CROSS JOIN p)
             SELECT grad(power(pred - y, 2), w) AS d FROM m",
        ),
        (
            "projection_twice",
            "WITH a AS (SELECT w, x, w * x AS u FROM d, p), b AS (SELECT w, sin(u) * x AS v FROM a)
             SELECT grad(v, w) AS d, grad(v * v, w) AS e FROM b",
        ),
        (
            "projection_renamed",
            "SELECT grad(q, v) AS d FROM (SELECT v, v * x AS q FROM (SELECT w AS v, x FROM d, p) AS a) AS m",
        ),
        ("projection_order_two", "SELECT grad(grad(q, w), w) AS d FROM (SELECT w, w * w * x AS q FROM d, p) AS m"),
        (
            "projection_jvp",
            "SELECT jvp(q * r, w, 2.0, b, y) AS d FROM (SELECT w, b, y, w * x AS q, b * x AS r FROM d, p) AS m",
        ),
        ("projection_vjp", "SELECT vjp(q, w, y) AS d FROM (SELECT w, y, w * x AS q FROM d, p) AS m"),
        ("projection_nullable", "SELECT grad(coalesce(q, w), w) AS d FROM (SELECT w, w * z AS q FROM d, p) AS m"),
    ])
    .await
}

#[tokio::test]
async fn filters_sorts_and_limits() -> Result<()> {
    snapshots(&[
        ("filter", "SELECT id FROM (SELECT id, w, w * x AS q FROM d, p) AS m WHERE grad(q * q, w) > 1"),
        ("filter_below", "SELECT grad(q, w) AS d FROM (SELECT w, w * x AS q FROM d, p WHERE x > 0) AS m WHERE q < 2"),
        ("sort", "SELECT id, w, q FROM (SELECT id, w, w * x AS q FROM d, p) AS m ORDER BY grad(q * q, w)"),
        (
            "sort_and_limit_below",
            "SELECT grad(s, w) AS d FROM (SELECT w, w * x AS s FROM d, p ORDER BY s DESC LIMIT 4) AS m",
        ),
    ])
    .await
}

#[tokio::test]
async fn joins() -> Result<()> {
    let (m, n) = ("(SELECT id, w, w * x AS q FROM d, p) AS m", "(SELECT id AS i, z FROM d) AS n");
    let of = |join: &str| format!("SELECT grad(q * z, w) AS d FROM {m} {join} {n} ON m.id = n.i");
    let (inner, left, full) = (of("JOIN"), of("LEFT JOIN"), of("FULL JOIN"));
    let on = format!("SELECT i FROM {m} JOIN {n} ON grad(q * q, w) > z");
    snapshots(&[
        ("join_inner", &inner),
        ("join_left", &left),
        ("join_full", &full),
        ("join_on_a_call", &on),
        (
            "join_semi",
            "SELECT grad(q, w) AS d FROM (SELECT id, w, w * x AS q FROM d, p) AS m LEFT SEMI JOIN d ON m.id = d.id",
        ),
    ])
    .await
}

#[tokio::test]
async fn aggregates() -> Result<()> {
    snapshots(&[
        ("aggregate_of_calls", "SELECT avg(grad(q * q, w)) AS d FROM (SELECT w, w * x AS q FROM d, p) AS m"),
        ("aggregate_avg", "SELECT w, grad(avg(power(w * x - y, 2)), w) AS d FROM d, p GROUP BY w"),
        ("aggregate_max", "SELECT grad(max(w * x) FILTER (WHERE x < 1), w) AS d FROM d, p GROUP BY w"),
        ("aggregate_corr", "SELECT grad(corr(w * x, z), w) AS d FROM d, p GROUP BY w"),
        ("aggregate_count", "SELECT grad(sum(w * x) / count(z), w) AS d FROM d, p GROUP BY w"),
        (
            "aggregate_key_that_varies",
            "SELECT grad(s * k, w) AS d FROM (SELECT w, w * x AS k, sum(w * y) AS s FROM d, p GROUP BY w, w * x) AS m",
        ),
        ("aggregate_having", "SELECT g FROM d, p GROUP BY g, w HAVING grad(avg(w * x), w) > 0.5"),
        (
            "aggregate_grouping_sets",
            "SELECT g, grad(sum(w * x), w) AS d FROM d, p GROUP BY GROUPING SETS ((g, w), (w))",
        ),
    ])
    .await
}

#[tokio::test]
async fn windows() -> Result<()> {
    snapshots(&[
        ("window_sum", "SELECT grad(sum(w * x) OVER (PARTITION BY g ORDER BY id), w) AS d FROM d, p"),
        (
            "window_max",
            "SELECT grad(max(w * x) OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND CURRENT ROW), w) AS d FROM d, p",
        ),
        ("window_lag", "SELECT grad(lag(w * x, 1, 0.0) OVER (ORDER BY id), w) AS d FROM d, p"),
        ("window_rank", "SELECT grad(w * x * rank() OVER (ORDER BY y), w) AS d FROM d, p"),
        ("window_together", "SELECT jvp(sum(w * x) OVER (PARTITION BY g ORDER BY id), w, 1) AS d FROM d, p"),
        ("window_one_cell", "SELECT grad(sum(w * x) OVER (), w) AS d FROM d, (SELECT avg(w) AS w FROM p) AS q"),
        ("window_own_cell", "SELECT grad(stddev(x) OVER (PARTITION BY g), x) AS d FROM d"),
        (
            "window_partitions",
            "SELECT grad(sum(w * x) OVER (PARTITION BY g), w) AS d, grad(corr(w * x, y) OVER (PARTITION BY g), w) AS e
             FROM d, p",
        ),
        (
            "window_on_window",
            "SELECT grad(exp(z) / sum(exp(z)) OVER (), x) AS d FROM (SELECT x, x - max(x) OVER () AS z FROM d) AS m",
        ),
    ])
    .await
}

#[tokio::test]
async fn unions_and_distinct() -> Result<()> {
    snapshots(&[
        (
            "union_all",
            "SELECT grad(q * q, w) AS d FROM (SELECT w, w * x AS q FROM d, p UNION ALL SELECT w, 3.0 FROM p) AS u",
        ),
        ("union", "SELECT grad(q, w) AS d FROM (SELECT w, w * x AS q FROM d, p UNION SELECT w, 3.0 FROM p) AS u"),
        ("distinct", "SELECT grad(q * q, w) AS d FROM (SELECT DISTINCT w, w * x AS q FROM d, p) AS u"),
        (
            "distinct_on",
            "SELECT grad(q, w) AS d FROM (SELECT DISTINCT ON (g) g, w, w * x AS q FROM d, p ORDER BY g, id) AS u",
        ),
        (
            "distinct_on_a_call",
            "SELECT DISTINCT ON (grad(q, w)) id, w FROM (SELECT id, w, w * x AS q FROM d, p) AS m
             ORDER BY grad(q, w), id DESC",
        ),
        ("except", "SELECT grad(q, w) AS d FROM (SELECT w, w * x AS q FROM d, p EXCEPT SELECT w, 3.0 FROM p) AS u"),
    ])
    .await
}

#[tokio::test]
async fn unnest() -> Result<()> {
    snapshots(&[("unnest", "SELECT grad(q * e, w) AS d FROM (SELECT w, w * 2 AS q, unnest(v) AS e FROM l) AS u")]).await
}

#[tokio::test]
async fn subqueries() -> Result<()> {
    snapshots(&[
        (
            "subquery_scalar",
            "SELECT x * (SELECT avg(grad(q * q, w)) FROM (SELECT w, w * x AS q FROM d, p) AS m) AS d FROM d",
        ),
        ("subquery_in", "SELECT id FROM d WHERE x IN (SELECT grad(q, w) FROM (SELECT w, w * x AS q FROM d, p) AS m)"),
        (
            "subquery_exists",
            "SELECT id FROM d WHERE EXISTS
             (SELECT 1 FROM (SELECT w, w * x AS q FROM d, p) AS m WHERE grad(q * q, w) > d.y)",
        ),
        (
            "subquery_beside",
            "SELECT grad(q * (SELECT max(x) FROM d), w) AS d FROM (SELECT w, w * x AS q FROM d, p) AS m",
        ),
    ])
    .await
}

#[tokio::test]
async fn recursive_queries() -> Result<()> {
    snapshots(&[
        (
            "recursion_kept",
            "WITH RECURSIVE r AS (SELECT 1 AS s, 2.0 AS b, 3.0 AS c UNION ALL SELECT s + 1, b, c + b FROM r WHERE s < 3)
             SELECT c, grad(c * c, c) AS d FROM r",
        ),
        (
            "recursion_nullable",
            "WITH RECURSIVE r AS (
             SELECT 1 AS s, 1.0 AS x UNION ALL SELECT s + 1, CASE WHEN s < 2 THEN 2.0 * x END FROM r WHERE s < 3)
             SELECT s, grad(x * x, x) AS d FROM r",
        ),
        (
            "recursion_step",
            "WITH RECURSIVE n AS (
             SELECT 0 AS s, w, CAST(1 AS DOUBLE) AS x FROM p
             UNION ALL
             SELECT s + 1, w, x - (x * x - w) / grad(x * x - w, x) FROM n WHERE s < 9)
             SELECT x FROM n",
        ),
        (
            "recursion_through",
            "WITH RECURSIVE o AS (
             SELECT 0 AS s, w, CAST(1 AS DOUBLE) AS q FROM p
             UNION ALL
             SELECT s + 1, w, q + 0.1 * w * q FROM o WHERE s < 9)
             SELECT grad(q * q, w) AS d FROM o",
        ),
        (
            "recursion_nullable_tangent",
            "WITH RECURSIVE r AS (
             SELECT 0 AS s, w, ln(w) AS x FROM p UNION ALL SELECT s + 1, w, 0.5 * x FROM r WHERE s < 1)
             SELECT grad(x, w) AS d FROM r",
        ),
    ])
    .await
}

#[tokio::test]
async fn statements() -> Result<()> {
    snapshots(&[
        ("insert", "INSERT INTO p SELECT w, grad(q, w) FROM (SELECT w, w * x AS q FROM d, p) AS m"),
        ("delete", "DELETE FROM d WHERE grad(x * y, x) > 1"),
        ("copy", "COPY (SELECT grad(q, w) AS d FROM (SELECT w, w * x AS q FROM d, p) AS m) TO 'd.csv'"),
        ("explain", "EXPLAIN SELECT grad(q, w) AS d FROM (SELECT w, w * x AS q FROM d, p) AS m"),
        ("create_view", "CREATE VIEW v AS SELECT grad(q, w) AS d FROM (SELECT w, w * x AS q FROM d, p) AS m"),
        ("prepare", "PREPARE s AS SELECT grad(q * $1, w) AS d FROM (SELECT w, w * x AS q FROM d, p) AS m"),
    ])
    .await
}

#[tokio::test]
async fn stacks() -> Result<()> {
    let tanh = (0..18).fold("x".to_owned(), |inner, _| format!("tanh({inner})"));
    let chain = format!("SELECT {tanh} AS f, grad({tanh}, x) AS d FROM d");
    let loss = "exp(w * x + b) * exp(y * x + b) / (1 + exp(w * x + b) * exp(y * x + b))";
    let columns = ["w", "b", "x", "y"].map(|column| format!("sum(grad({loss}, {column}))")).join(", ");
    let gradient = format!("SELECT g, {columns} FROM p CROSS JOIN d GROUP BY g");
    snapshots(&[("stack_chain", &chain), ("stack_gradient", &gradient)]).await
}
