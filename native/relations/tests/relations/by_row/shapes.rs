//! Gradients by row through every kind of node, against finite differences of the statement cell by cell.

use datafusion::error::Result;
use datafusion::prelude::SessionContext;

use crate::differences::{differences, first_that_differs};
use crate::session::{floats, session};

const KEYS: [i64; 7] = [1, 2, 3, 4, 5, 6, 7];
/// The row whose value is NULL.
const NULL: i64 = 6;

const TABLES: [&str; 2] = [
    "CREATE TABLE w (k BIGINT NOT NULL, g VARCHAR, t BIGINT NOT NULL, val DOUBLE) AS VALUES
     (1, 'a', 1, 0.5), (2, 'a', 2, -0.75), (3, 'b', 1, 1.25), (4, 'b', 3, 2.0), (5, NULL, 2, 0.25), (6, 'c', 5, NULL), (7, 'b', 4, -1.5)",
    "CREATE TABLE d (i BIGINT NOT NULL, k BIGINT, x DOUBLE) AS VALUES
     (1, 1, 1.0), (2, 1, -0.5), (3, 2, 2.0), (4, 3, 0.25), (5, 3, NULL), (6, 4, 1.5), (7, 9, 3.0), (8, NULL, 1.0), (9, 7, 0.5)",
];

/// The first column of a query, in the order of the last, for the order of DataFusion 54 cannot be relied on.
async fn values(ctx: &SessionContext, sql: &str) -> Result<Vec<Option<f64>>> {
    let mut rows = vec![];
    for batch in ctx.sql(sql).await?.collect().await? {
        let keys = floats(batch.column(batch.num_columns() - 1))?;
        rows.extend(keys.into_iter().zip(floats(batch.column(0))?));
    }
    rows.sort_by(|(a, _), (b, _)| a.partial_cmp(b).expect("no key is NaN"));
    Ok(rows.into_iter().map(|(_, value)| value).collect())
}

/// Statements of one value; `{w}` is the table.
const SHAPES: &[&str] = &[
    "SELECT SUM(val * val) FROM {w} w",
    "SELECT SUM(sin(val)) FROM {w} w WHERE val > -1",
    "SELECT AVG(exp(val)) FROM {w} w",
    "SELECT AVG(val) FILTER (WHERE t > 1) FROM {w} w",
    "SELECT MAX(val * val) FROM {w} w",
    "SELECT MIN(val) * 3 FROM {w} w",
    "SELECT STDDEV(val) FROM {w} w",
    "SELECT VAR_POP(val) + STDDEV_POP(val) FROM {w} w",
    "SELECT VAR_SAMP(val * t) FROM {w} w",
    "SELECT CORR(val, t) FROM {w} w",
    "SELECT CORR(t * t, val) FROM {w} w",
    "SELECT COVAR_SAMP(val, exp(val)) FROM {w} w",
    "SELECT COVAR_POP(val, t) FROM {w} w",
    "SELECT REGR_SLOPE(val * val, t + val) FROM {w} w",
    "SELECT REGR_INTERCEPT(val * val, t + val) FROM {w} w",
    "SELECT REGR_R2(val * val, t + val) FROM {w} w",
    "SELECT REGR_SXX(val, t + val) + REGR_SYY(val, t + val) * REGR_SXY(val, t + val) FROM {w} w",
    "SELECT REGR_AVGX(val, t + val) * REGR_AVGY(val, t + val) FROM {w} w",
    "SELECT SUM(s * s) FROM (SELECT g, SUM(val) AS s FROM {w} w GROUP BY g) q",
    "SELECT SUM(s * m) FROM (SELECT g, SUM(val) AS s, MAX(val) AS m FROM {w} w GROUP BY g HAVING COUNT(*) > 1) q",
    "SELECT SUM(w.val * d.x) FROM {w} w JOIN d ON w.k = d.k",
    "SELECT SUM(coalesce(w.val, 1) * d.x) FROM d LEFT JOIN {w} w ON w.k = d.k",
    "SELECT SUM(w.val * coalesce(d.x, 2)) FROM d RIGHT JOIN {w} w ON w.k = d.k",
    "SELECT SUM(coalesce(w.val, 2) * coalesce(d.x, 2)) FROM d FULL JOIN {w} w ON w.k = d.k",
    "SELECT SUM(w.val * d.x) FROM {w} w JOIN d ON w.k < d.k AND d.x > 0",
    "SELECT SUM(a.val * b.val) FROM {w} a JOIN {w} b ON a.t = b.t",
    "SELECT SUM(a.val * b.val) FROM {w} a CROSS JOIN {w} b",
    "SELECT SUM(a.val * coalesce(b.val, 3)) FROM {w} a LEFT JOIN {w} b ON a.k = b.k + 1",
    "SELECT SUM(val * val) FROM {w} w WHERE k IN (SELECT k FROM d)",
    "SELECT SUM(val * val) FROM {w} w WHERE k NOT IN (SELECT k FROM d WHERE k IS NOT NULL)",
    "SELECT SUM(val * val) FROM {w} w WHERE k NOT IN (SELECT k FROM d)",
    "SELECT SUM(val * val) FROM {w} w WHERE EXISTS (SELECT 1 FROM d WHERE d.k = w.k AND d.x > 0)",
    "SELECT SUM(val * val) FROM {w} w WHERE NOT EXISTS (SELECT 1 FROM d WHERE d.k = w.k)",
    "SELECT SUM(w.val) FROM {w} w LEFT SEMI JOIN d ON w.k = d.k",
    "SELECT SUM(w.val * w.val) FROM {w} w LEFT ANTI JOIN d ON w.k = d.k",
    "SELECT SUM(v) FROM (SELECT val * 2 AS v FROM {w} w UNION ALL SELECT sin(val) FROM {w} w WHERE t > 1 UNION ALL SELECT x FROM d) u",
    "SELECT SUM(v * v) FROM (SELECT DISTINCT val AS v FROM {w} w) u",
    "SELECT SUM(v * n) FROM (SELECT val AS v, COUNT(*) AS n FROM {w} w GROUP BY val) u",
    "SELECT SUM(v) FROM (SELECT val * val AS v FROM {w} w ORDER BY t DESC, k LIMIT 3) u",
    "SELECT SUM(v) FROM (SELECT val * val AS v FROM {w} w ORDER BY k LIMIT 3 OFFSET 2) u",
    "SELECT val * 2 FROM {w} w WHERE k = 3",
    "SELECT val FROM {w} w ORDER BY t DESC, k LIMIT 1",
    "SELECT SUM(power(val - (SELECT AVG(val) FROM {w} w), 2)) FROM {w} w",
    "SELECT SUM(val) / (SELECT SUM(x) FROM d) + (SELECT MAX(val) FROM {w} w) FROM {w} w",
    "SELECT SUM(val) FROM {w} w WHERE val < (SELECT AVG(val) FROM {w} w)",
    "SELECT SUM(s * t) FROM (SELECT t, SUM(val) OVER () AS s FROM {w} w) q",
    "SELECT SUM(s * t) FROM (SELECT t, SUM(val) OVER (PARTITION BY g) AS s FROM {w} w) q",
    "SELECT SUM(s * t) FROM (SELECT t, SUM(val * val) OVER (ORDER BY t) AS s FROM {w} w) q",
    "SELECT SUM(s * t) FROM (SELECT t, AVG(val) OVER (ORDER BY k ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS s FROM {w} w) q",
    "SELECT SUM(s * t) FROM (SELECT t, MAX(val) OVER (PARTITION BY g ORDER BY k) AS s FROM {w} w) q",
    "SELECT SUM(s * t) FROM (SELECT t, SUM(val) OVER (ORDER BY t RANGE BETWEEN 1 PRECEDING AND CURRENT ROW) AS s FROM {w} w) q",
    "SELECT SUM(s * t * val) FROM (SELECT t, val, STDDEV(val) OVER (PARTITION BY g) AS s FROM {w} w) q",
    "SELECT SUM(s * t) FROM (SELECT t, LAG(val) OVER (ORDER BY k) AS s FROM {w} w) q",
    "SELECT SUM(s * val) FROM (SELECT val, LAG(val, 2, 0.5) OVER (PARTITION BY g ORDER BY k) AS s FROM {w} w) q",
    "SELECT SUM(s * t) FROM (SELECT t, LEAD(val * val) OVER (ORDER BY k) AS s FROM {w} w) q",
    "SELECT SUM(s * t) FROM (SELECT t, FIRST_VALUE(val) OVER (PARTITION BY g ORDER BY k) AS s FROM {w} w) q",
    "SELECT SUM(s * t) FROM (SELECT t, LAST_VALUE(val) OVER (ORDER BY k ROWS BETWEEN CURRENT ROW AND 2 FOLLOWING) AS s FROM {w} w) q",
    "SELECT SUM(s * t) FROM (SELECT t, NTH_VALUE(val, 2) OVER (ORDER BY k) AS s FROM {w} w) q",
    "SELECT SUM(val * r) FROM (SELECT val, ROW_NUMBER() OVER (ORDER BY t, k) AS r FROM {w} w) q",
    "SELECT SUM(val) FROM (SELECT val, ROW_NUMBER() OVER (PARTITION BY g ORDER BY k) AS r FROM {w} w) q WHERE r = 1",
    "SELECT SUM(p * t) FROM (SELECT t, e / SUM(e) OVER () AS p FROM (SELECT t, exp(val - MAX(val) OVER ()) AS e FROM {w} w) q) q",
    "WITH h AS (SELECT g, tanh(SUM(val)) AS v FROM {w} w GROUP BY g) SELECT SUM(a.v * b.v) FROM h a JOIN h b ON a.g < b.g",
    "WITH h AS (SELECT g, tanh(SUM(val)) AS v FROM {w} w GROUP BY g), i AS (SELECT g, v * v AS v FROM h UNION ALL SELECT g, -v FROM h) SELECT SUM(sin(i.v) * h.v) FROM h JOIN i ON h.g = i.g",
    "SELECT SUM(s * t) FROM (SELECT t, LAG(val) IGNORE NULLS OVER (ORDER BY k) AS s FROM {w} w) q",
    "SELECT SUM(s * t) FROM (SELECT t, LEAD(val, 2, 0.25) IGNORE NULLS OVER (PARTITION BY g ORDER BY k DESC) AS s FROM {w} w) q",
    "SELECT SUM(s * t) FROM (SELECT t, FIRST_VALUE(val) IGNORE NULLS OVER (ORDER BY k DESC ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS s FROM {w} w) q",
    "SELECT SUM(s * t) FROM (SELECT t, LAST_VALUE(val) IGNORE NULLS OVER (PARTITION BY g ORDER BY k) AS s FROM {w} w) q",
    "SELECT SUM(s * t) FROM (SELECT t, LAST_VALUE(val * k) IGNORE NULLS OVER () AS s FROM {w} w WHERE k > 5) q",
    "SELECT SUM(s * t) FROM (SELECT t, NTH_VALUE(val, 2) IGNORE NULLS OVER (ORDER BY k) AS s FROM {w} w) q",
    "SELECT SUM(s * t) FROM (SELECT t, NTH_VALUE(val, -2) OVER (ORDER BY k ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS s FROM {w} w) q",
    "SELECT SUM(s * t) FROM (SELECT t, LAG(val, -1) OVER (ORDER BY k) AS s FROM {w} w) q",
    "SELECT SUM(s * t) FROM (SELECT t, MIN(val) OVER (ORDER BY t GROUPS BETWEEN 1 PRECEDING AND CURRENT ROW) AS s FROM {w} w) q",
    "SELECT SUM(s * t) FROM (SELECT t, AVG(val) OVER (ORDER BY t GROUPS BETWEEN 1 FOLLOWING AND 2 FOLLOWING) AS s FROM {w} w) q",
    "SELECT SUM(s * t) FROM (SELECT t, SUM(val) OVER (ORDER BY t DESC RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS s FROM {w} w) q",
    "SELECT SUM(s * t) FROM (SELECT t, SUM(val) FILTER (WHERE t > 1) OVER (ORDER BY t, k) AS s FROM {w} w) q",
    "SELECT SUM(s * t) FROM (SELECT t, MAX(DISTINCT val) OVER (PARTITION BY g) AS s FROM {w} w) q",
    "SELECT MAX(DISTINCT val) + MIN(DISTINCT val * t) FROM {w} w",
    "SELECT SUM(v * v) FROM (SELECT val AS v, k FROM {w} w UNION SELECT 2 * val, k FROM {w} w) u",
    "SELECT SUM(v * v) FROM (SELECT val AS v, k FROM {w} w INTERSECT ALL SELECT val, k FROM {w} w WHERE t > 1) u",
    "SELECT SUM(v * v) FROM (SELECT val AS v, k FROM {w} w EXCEPT SELECT x, k FROM d) u",
    "SELECT SUM(v * v) FROM (SELECT DISTINCT ON (g) val AS v, g FROM {w} w ORDER BY g, k DESC) u",
    "SELECT SUM(v * u) FROM (SELECT DISTINCT ON (g) g, val * t AS v, k AS u FROM {w} w ORDER BY g, t DESC) u",
    "SELECT SUM(v * u) FROM (SELECT unnest([1, 2, t]) AS u, val AS v FROM {w} w) u",
    "SELECT SUM(v * u * n) FROM (SELECT unnest([1, 2, t]) AS u, unnest([t, 3]) AS n, val * val AS v FROM {w} w) u",
    "SELECT SUM(j * t) FROM (SELECT t, grad(SUM(val * val * val) OVER (PARTITION BY g), val) AS j FROM {w} w) q",
    "SELECT SUM(j * j) FROM (SELECT jvp(SUM(val * val) OVER (ORDER BY k), val, 1) AS j FROM {w} w) q",
    "SELECT SUM(j * t) FROM (SELECT t, jvp(STDDEV(val) OVER (PARTITION BY g), val, 1) AS j FROM {w} w) q",
    "SELECT SUM(j * t) FROM (SELECT t, jvp(MAX(val * val * val) OVER (PARTITION BY g), val, 1) AS j FROM {w} w) q",
    "SELECT SUM(j * t) FROM (SELECT t, jvp(MIN(val * val) OVER (ORDER BY k ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING), val, 1) AS j FROM {w} w) q",
    "SELECT SUM(j * j * t) FROM (SELECT t, jvp(MAX(val * val) FILTER (WHERE k < 7) OVER (ORDER BY k), val, 1) AS j FROM {w} w) q",
    "SELECT SUM(j * t) FROM (SELECT t, grad(MAX(val * val) OVER (PARTITION BY g), val) AS j FROM {w} w) q",
    "SELECT SUM(sin(grad(q * val, val))) FROM (SELECT val, val * val AS q FROM {w} w) q",
    "SELECT SUM(CASE WHEN val > 0 THEN val * val ELSE -val END) FROM {w} w",
    "SELECT SUM(greatest(val, 0.1) * t) FROM {w} w",
    "SELECT SUM(CAST(val AS REAL)) FROM {w} w",
    "SELECT sqrt(SUM(val * val) + 1) FROM {w} w",
    "SELECT COUNT(val) FROM {w} w",
    "SELECT SUM(t) FROM {w} w",
];

/// What is wrong with the gradient of a statement of one value.
async fn fault(ctx: &SessionContext, shape: &str) -> Result<Option<String>> {
    let plain = shape.replace("{w}", "w");
    let gradient = values(ctx, &format!("SELECT grad(({plain}), val) AS d, k FROM w")).await?;
    let has_value = values(ctx, &plain).await?[0].is_some();
    let mut expected = vec![];
    for key in KEYS {
        let moved_by = async |step: f64| {
            let w = format!("(SELECT k, g, t, CASE WHEN k = {key} THEN val + {step:?} ELSE val END AS val FROM w)");
            values(ctx, &shape.replace("{w}", &w)).await
        };
        let derivative = differences(moved_by).await?[0];
        expected.push(derivative.filter(|_| key != NULL && has_value));
    }
    let tolerance = if shape.contains("REAL") { 1e-2 } else { 1e-8 };
    Ok(first_that_differs(&gradient, &expected, tolerance))
}

#[tokio::test]
async fn every_shape() -> Result<()> {
    let ctx = session(TABLES).await?;
    let mut failures = vec![];
    for shape in SHAPES {
        match fault(&ctx, shape).await {
            Ok(None) => {}
            Ok(Some(fault)) => failures.push(format!("{shape}\n    {fault}")),
            Err(error) => {
                failures.push(format!("{shape}\n    {}", error.to_string().lines().next().unwrap_or_default()));
            }
        }
    }
    assert!(failures.is_empty(), "{} of {}\n{}", failures.len(), SHAPES.len(), failures.join("\n"));
    Ok(())
}
