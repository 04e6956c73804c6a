//! Derivatives through relations, against finite differences of the same query.

use datafusion::error::Result;
use datafusion::prelude::SessionContext;

use crate::differences::{differences, first_that_differs};
use crate::session::{named, session};

/// The value of the variable.
const W: f64 = 0.7;

/// `d` has NULLs and duplicates; `params` has one row, of which `w` is the variable.
async fn tables(w: f64) -> Result<SessionContext> {
    session([
        format!("CREATE TABLE params AS SELECT CAST({w:?} AS DOUBLE) AS w, CAST(0.4 AS DOUBLE) AS b").as_str(),
        "CREATE TABLE d (id INT NOT NULL, g VARCHAR NOT NULL, x DOUBLE NOT NULL, y DOUBLE NOT NULL, z DOUBLE) AS VALUES
         (1, 'a', 1.0, 2.5, 0.5), (2, 'a', -0.5, 1.0, NULL), (3, 'b', 2.0, -1.0, 1.5), (4, 'b', 2.0, 0.5, -0.75),
         (5, 'b', 0.25, 0.0, 2.0), (6, 'c', 1.5, 1.5, NULL), (7, 'c', 1.0, 2.5, 0.5)",
    ])
    .await
}

/// The column `d` of a query.
async fn column(w: f64, sql: &str) -> Result<Vec<Option<f64>>> {
    named(&tables(w).await?, "d", sql).await
}

/// `sql` with each `D{f}` replaced by `write(f)`.
fn written(sql: &str, write: impl Fn(&str) -> String) -> String {
    let mut rest = sql;
    let mut whole = String::new();
    while let Some(start) = rest.find("D{") {
        let end = start + rest[start..].find('}').expect("a closing brace");
        whole += &rest[..start];
        whole += &write(&rest[start + 2..end]);
        rest = &rest[end + 1..];
    }
    whole + rest
}

/// Asserts that `D{f}` as `grad(f, w)` is the derivative of the query with `f` itself.
async fn assert_derivative_by(variable: &str, sql: &str) -> Result<()> {
    let actual = column(W, &written(sql, |f| format!("grad({f}, {variable})"))).await?;
    let primal = written(sql, |f| format!("({f})"));
    let expected = differences(async |step: f64| column(W + step, &primal).await).await?;
    assert!(actual.iter().flatten().any(|value| *value != 0.0), "{sql} gives nothing but zeros: {actual:?}");
    if let Some(difference) = first_that_differs(&actual, &expected, 1e-7) {
        panic!("{difference} of {sql}");
    }
    Ok(())
}

async fn assert_derivative(sql: &str) -> Result<()> {
    assert_derivative_by("w", sql).await
}

async fn assert_refused(sql: &str, parts: &[&str]) {
    let message = column(W, sql).await.expect_err(sql).to_string();
    for part in parts {
        assert!(message.contains(part), "{message:?} lacks {part:?}");
    }
}

#[tokio::test]
async fn the_opening_queries() -> Result<()> {
    assert_derivative(
        "WITH m AS (SELECT y, w, w * x + b AS pred FROM d CROSS JOIN params)
         SELECT AVG(D{power(pred - y, 2)}) AS d FROM m",
    )
    .await?;
    assert_derivative("SELECT w, D{AVG(power(w * x - y, 2))} AS d FROM d CROSS JOIN params GROUP BY w").await?;
    let squares = column(W, "SELECT grad(x * x, x) AS d FROM d GROUP BY x * x, x ORDER BY x").await?;
    assert_eq!(squares, [-1.0, 0.5, 2.0, 3.0, 4.0].map(Some));
    Ok(())
}

#[tokio::test]
async fn projections_filters_sorts_limits_and_aliases() -> Result<()> {
    for sql in [
        "SELECT id, D{q * q} AS d FROM (SELECT id, w, sin(p) AS q FROM (SELECT id, w, w * x AS p FROM d, params) AS a) AS b
         WHERE q < 2 ORDER BY id LIMIT 5",
        "SELECT id, D{p * v} AS d FROM (SELECT id, v AS w, v, v * x AS p FROM (SELECT *, w AS v FROM d, params) AS a) AS b
         ORDER BY id",
        "WITH m AS (SELECT id, w, w * z AS p FROM d, params) SELECT id, D{coalesce(p, w)} AS d FROM m ORDER BY id",
        "WITH m AS (SELECT id, x, w, ln(w * x) AS p FROM d, params)
         SELECT id, D{CASE WHEN x > 0 THEN p ELSE 1.0 END} AS d FROM m ORDER BY id",
        "SELECT id, D{s} AS d FROM (SELECT id, w, w * x AS s FROM d, params ORDER BY s DESC LIMIT 4) AS m ORDER BY id",
        "SELECT w * w * x AS s, D{w * w * x} AS d FROM d, params ORDER BY id",
    ] {
        assert_derivative(sql).await?;
    }
    Ok(())
}

#[tokio::test]
async fn joins() -> Result<()> {
    for sql in [
        "WITH m AS (SELECT id, w, w * x AS p FROM d, params), n AS (SELECT id AS i, z FROM d WHERE z IS NOT NULL)
         SELECT id, D{p * z} AS d FROM m JOIN n ON m.id = n.i ORDER BY id",
        "WITH m AS (SELECT id, w, w * w * x AS p FROM d, params), n AS (SELECT id AS i, z FROM d WHERE z IS NOT NULL)
         SELECT i, D{p * z} AS d FROM n LEFT JOIN (SELECT * FROM m WHERE id > 3) AS m ON m.id = n.i ORDER BY i",
        "WITH m AS (SELECT id, w, w * w * x AS p FROM d, params), n AS (SELECT id + 2 AS i FROM d)
         SELECT i, D{coalesce(p, 3.0)} AS d FROM m FULL JOIN n ON m.id = n.i ORDER BY i, id",
        "WITH m AS (SELECT id, w, w * w * x AS p FROM d, params)
         SELECT id, D{p} AS d FROM m WHERE id IN (SELECT id FROM d WHERE x > 0) ORDER BY id",
        "WITH m AS (SELECT id, w, w * w * x AS p FROM d, params)
         SELECT id, D{p * (SELECT MAX(x) FROM d)} AS d FROM m ORDER BY id",
    ] {
        assert_derivative(sql).await?;
    }
    Ok(())
}

#[tokio::test]
async fn unions_and_distinct() -> Result<()> {
    for sql in [
        "SELECT id, D{p * p} AS d FROM (SELECT id, w, w * x AS p FROM d, params UNION ALL
         SELECT id + 10, w, x FROM d, params UNION ALL SELECT id + 20, w, w AS v FROM d, params) AS u ORDER BY id",
        "SELECT p, D{p * p} AS d FROM (SELECT DISTINCT w, x * w AS p FROM d, params) AS u ORDER BY p",
        "SELECT p, D{p * p} AS d FROM (SELECT w, x * w AS p FROM d, params UNION SELECT w, w + 10 FROM params) AS u
         ORDER BY p",
        "SELECT g, D{p * p} AS d FROM (SELECT DISTINCT ON (g) g, w, x * w AS p FROM d, params ORDER BY g, id) AS u
         ORDER BY g",
        "SELECT p, D{p * p} AS d FROM (SELECT w, x * w AS p FROM d, params
         EXCEPT SELECT w, x * w FROM d, params WHERE id = 5) AS u ORDER BY p",
    ] {
        assert_derivative(sql).await?;
    }
    let values = "SELECT grad(p, w) AS d FROM (SELECT DISTINCT w, (w - 0.7) * x AS p FROM d, params) AS u";
    assert!(column(W, values).await?[0].is_some_and(f64::is_nan));
    Ok(())
}

#[tokio::test]
async fn aggregates() -> Result<()> {
    for aggregate in [
        "SUM(p)",
        "AVG(p)",
        "MIN(p)",
        "MAX(p)",
        "AVG(p) FILTER (WHERE x > 0.5)",
        "MAX(p) FILTER (WHERE x < 1.2)",
        "var_pop(p)",
        "var_samp(p)",
        "stddev_pop(p)",
        "stddev(p)",
        "covar_pop(p, y)",
        "covar_samp(y, p)",
        "corr(p, y)",
        "corr(y, p)",
        "corr(p, p * p + y)",
        "corr(z, p)",
        "regr_slope(p, y)",
        "regr_slope(y, p)",
        "regr_slope(z, p * x)",
        "regr_intercept(p, y)",
        "regr_intercept(y, p)",
        "regr_intercept(p * x, z)",
        "regr_r2(p, y)",
        "regr_r2(z, p * x)",
        "regr_avgx(z, p)",
        "regr_avgy(p, z)",
        "regr_sxx(y, p)",
        "regr_syy(p, y)",
        "regr_sxy(p, p * p)",
        "first_value(p ORDER BY id)",
        "last_value(p ORDER BY y, id)",
        "nth_value(p, 2 ORDER BY id)",
        "SUM(q)",
        "AVG(q)",
        "MIN(q)",
        "MAX(q)",
        "stddev(q)",
        "covar_pop(q, p)",
        "first_value(q ORDER BY z)",
        "SUM(p) / COUNT(q) + w",
        "AVG(power(p - y, 2)) + 0.1 * w * w",
    ] {
        let of = "FROM (SELECT *, sin(w * x + 0.3 * id) AS p, w * w * z AS q FROM d, params) AS m";
        assert_derivative(&format!("SELECT D{{{aggregate}}} AS d {of} GROUP BY w")).await?;
        let groups =
            "SELECT id % 2 AS k, D{a * a} AS d FROM (SELECT id % 2 AS k, w, AGGREGATE AS a OF GROUP BY id % 2, w) AS n";
        let groups = groups.replace("AGGREGATE", aggregate).replace("OF", of).replace("id % 2 AS k, D", "k, D");
        assert_derivative(&format!("{groups} ORDER BY k")).await?;
    }
    Ok(())
}

#[tokio::test]
async fn groups() -> Result<()> {
    for sql in [
        "SELECT id, D{s * k} AS d FROM (SELECT w, w * x AS k, MIN(id) AS id, SUM(w * y) AS s FROM d, params
         GROUP BY w, w * x) AS m ORDER BY id",
        "SELECT g, D{SUM(w * x)} AS d FROM d, params GROUP BY GROUPING SETS ((g, w), (w)) ORDER BY g",
        "SELECT g, D{AVG(w * x)} AS d FROM d, params GROUP BY g, w HAVING D{AVG(w * x)} > 0.5 AND MAX(x) > 0 ORDER BY g",
    ] {
        assert_derivative(sql).await?;
    }
    Ok(())
}

#[tokio::test]
async fn windows() -> Result<()> {
    for function in [
        "SUM(p) OVER (ORDER BY id)",
        "AVG(p) OVER (PARTITION BY g)",
        "AVG(q) OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING)",
        "MIN(p) OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)",
        "MAX(p) OVER (PARTITION BY g)",
        "SUM(p) FILTER (WHERE x > 0.5) OVER (ORDER BY id)",
        "var_pop(p) OVER ()",
        "stddev_pop(p) OVER (PARTITION BY g)",
        "covar_pop(p, y) OVER (PARTITION BY g)",
        "corr(p, y) OVER ()",
        "regr_slope(y, p) OVER ()",
        "regr_r2(y, p) OVER (ORDER BY id)",
        "first_value(p) OVER (PARTITION BY g ORDER BY id)",
        "last_value(p) OVER (PARTITION BY g)",
        "nth_value(p, 2) OVER (ORDER BY id)",
        "lag(p) OVER (ORDER BY id)",
        "lag(p, 2, 5.0) OVER (ORDER BY id)",
        "lead(q, 1) OVER (ORDER BY id)",
        "p * rank() OVER (ORDER BY y) + percent_rank() OVER (ORDER BY y)",
        "p - AVG(p) OVER ()",
    ] {
        let of = "FROM (SELECT *, sin(w * x + 0.3 * id) AS p, w * w * z AS q FROM d, params) AS m";
        assert_derivative(&format!("SELECT id, D{{{function}}} AS d {of} ORDER BY id")).await?;
        assert_derivative(&format!(
            "SELECT id, D{{a * a}} AS d FROM (SELECT id, w, {function} AS a {of}) AS n ORDER BY id"
        ))
        .await?;
    }
    Ok(())
}

#[tokio::test]
async fn recursion() -> Result<()> {
    for sql in [
        "WITH RECURSIVE o AS (
           SELECT 0 AS step, w, CAST(1 AS DOUBLE) AS q, CAST(0 AS DOUBLE) AS p FROM params
           UNION ALL
           SELECT step + 1, w, q + 0.05 * p, p - 0.05 * w * w * (q + 0.05 * p) FROM o WHERE step < 40)
         SELECT step, w, D{q * q + p} AS d FROM o ORDER BY step", // Without w, DataFusion drops the column, which o reads.
        "WITH RECURSIVE newton AS (
           SELECT 0 AS step, w, w AS x FROM params
           UNION ALL
           SELECT step + 1, w, x - (x * x - w) / grad(x * x - w, x) FROM newton WHERE step < 8)
         SELECT D{x} AS d FROM newton WHERE step = 8",
        "WITH RECURSIVE fit AS (
           SELECT 0 AS step, w AS rate, CAST(0.1 AS DOUBLE) AS a FROM params
           UNION ALL
           SELECT step + 1, rate, a - 0.1 * rate * AVG(grad(power(a * x - y, 2), a)) FROM fit CROSS JOIN d
           WHERE step < 10 GROUP BY step, rate, a)
         SELECT D{power(a - 3, 2)} AS d FROM (SELECT step, rate AS w, a FROM fit) AS f WHERE step = 10",
    ] {
        assert_derivative(sql).await?;
    }
    Ok(())
}

#[tokio::test]
async fn higher_orders() -> Result<()> {
    for sql in [
        "SELECT D{p} AS d FROM (SELECT id, w, grad(q * q, w) AS p FROM
         (SELECT id, w, w * w * x AS q FROM d, params) AS a) AS b ORDER BY id",
        "SELECT D{AVG(grad(power(w * x - y, 3), w))} AS d FROM d, params GROUP BY w",
        "SELECT D{grad(AVG(power(w * x - y, 3)), w)} AS d FROM d, params GROUP BY w",
        "SELECT g, D{grad(stddev(p), w)} AS d FROM (SELECT g, w, id * exp(w * x) AS p FROM d, params) AS m
         GROUP BY g, w ORDER BY g",
        "SELECT g, D{grad(MAX(p), w)} AS d FROM (SELECT g, w, id * exp(w * x) AS p FROM d, params) AS m
         GROUP BY g, w ORDER BY g",
        "SELECT id, D{grad(SUM(p) OVER (ORDER BY id), w)} AS d FROM
         (SELECT id, w, id * exp(w * x) AS p FROM d, params) AS m ORDER BY id",
        "SELECT id, D{grad(MAX(p) OVER (ORDER BY id), w)} AS d FROM
         (SELECT id, w, id * exp(w * x) AS p FROM d, params) AS m ORDER BY id",
        "SELECT id, D{grad(grad(q * MIN(p) OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING), w), w)} AS d FROM
         (SELECT id, w, w * w * z AS q, sin(id * w * x) AS p FROM d, params) AS m ORDER BY id",
        "SELECT id, D{grad(corr(p, y) OVER (), w)} AS d FROM
         (SELECT id, y, w, id * exp(w * x) AS p FROM d, params) AS m ORDER BY id",
        "SELECT id, D{grad(grad(grad(AVG(exp(w) * x) OVER (ORDER BY id), w), w), w)} AS d FROM d, params ORDER BY id",
        "SELECT id, D{grad(p * p, w)} AS d FROM (SELECT DISTINCT id, w, exp(w * x) AS p FROM d, params) AS m ORDER BY id",
        "SELECT id, D{grad(p * p, w)} AS d FROM (SELECT id, w, exp(w * x) AS p FROM d, params
         UNION ALL SELECT id + 10, w, w * w * w FROM d, params) AS m ORDER BY id",
        // The outer call reads the tangent that the inner one has put below, and not its own variable.
        "SELECT x, D{grad(SUM(w * x * x), x)} AS d FROM (SELECT x, w FROM d, params
         UNION ALL SELECT x, w FROM d, params) AS m GROUP BY x, w ORDER BY x",
    ] {
        assert_derivative(sql).await?;
    }
    // The inner derivative reads what the outer one is by only to be NULL where that is.
    let by_a_maximum = "SELECT id, grad(grad(m * x * x, x), m) / (2 * x) AS d FROM
                        (SELECT id, x, MAX(x) OVER (ORDER BY id) AS m FROM d) AS a ORDER BY id";
    assert_eq!(column(W, by_a_maximum).await?, vec![Some(1.0); 7]);
    // The two averages are equal when they have been simplified.
    let beside =
        "SELECT AVG(exp(w)) OVER () - D{AVG(exp(w)) OVER ()} + D{AVG(exp(w)) OVER (ORDER BY id)} AS d FROM d, params";
    assert_derivative(beside).await?;
    let third = "SELECT id, grad(grad(grad(p * p, w), w), w) AS d FROM
                 (SELECT id, w, w * w * x AS p FROM d, params) AS m ORDER BY id";
    let expected = [1.0, -0.5, 2.0, 2.0, 0.25, 1.5, 1.0].map(|x: f64| 24.0 * 0.7 * x * x);
    for (actual, expected) in column(W, third).await?.iter().zip(expected) {
        assert!(actual.is_some_and(|actual| (actual - expected).abs() < 1e-12), "{actual:?} {expected}");
    }
    Ok(())
}

#[tokio::test]
async fn a_tangent_that_is_carried_needs_no_guard() -> Result<()> {
    let ctx = tables(W).await?;
    for (sql, guarded) in [
        ("SELECT grad(q, z) AS d FROM (SELECT z, z * z AS q FROM d)", false),
        ("SELECT grad(q * q, z) AS d FROM (SELECT z, z * exp(z) AS q FROM d WHERE x > 0)", false),
        ("SELECT jvp(q, z, x) AS d FROM (SELECT x, z, z * z AS q FROM d)", false),
        // 1 is not NULL where z is.
        ("SELECT grad(q + 2 * z, z) AS d FROM (SELECT z, x * z AS q FROM d)", true),
    ] {
        let plan = ctx.sql(sql).await?.into_optimized_plan()?.display_indent().to_string();
        assert_eq!(plan.contains("CASE"), guarded, "{sql} is {plan}");
    }
    Ok(())
}

#[tokio::test]
async fn what_cannot_be_followed_is_refused_by_name() {
    let of = "FROM (SELECT *, w * x AS p FROM d, params) AS m";
    for (aggregate, parts) in [
        ("SUM(DISTINCT p)", ["sum(DISTINCT", "DISTINCT values"]),
        ("approx_median(p)", ["no derivative", "approx_median"]),
        ("approx_percentile_cont(p, 0.5)", ["no derivative", "approx_percentile_cont"]),
    ] {
        assert_refused(&format!("SELECT grad({aggregate}, w) AS d {of} GROUP BY w"), &parts).await;
    }
    assert_refused("SELECT grad(a.w * 2, b.w) AS d FROM params AS a, params AS b", &["a.w", "b.w", "reference"]).await;
    for volatile in ["x * (SELECT random())", "CASE WHEN x > (SELECT random()) THEN x ELSE x * x END"] {
        assert_refused(&format!("SELECT grad({volatile}, x) AS d FROM d"), &["volatile", "draw another value"]).await;
    }
    assert_refused("SELECT jvp(greatest(x, y) * x, x, random(), y, 1.0) AS d FROM d", &["random()", "volatile"]).await;
    assert_refused(
        "SELECT grad(p, w) AS d FROM (SELECT w, CAST(CAST(w AS VARCHAR) AS DOUBLE) AS p FROM params)",
        &["Utf8"],
    )
    .await;
    assert_refused(
        "SELECT grad(f, w) AS d FROM (SELECT w, w AS f FROM params UNION ALL SELECT a.w, b.w FROM params AS a, params AS b)",
        &["in branch 2 of a UNION ALL", "reference"],
    )
    .await;
    assert_refused("SELECT grad(a.x * a.x, b.x) AS d FROM d AS a, d AS b", &["a.x", "b.x", "reference"]).await;
}
