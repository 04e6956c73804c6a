//! Gradients by row, against finite differences and gradients written by hand.

use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::error::Result;
use datafusion::prelude::SessionContext;

use crate::differences::{assert_close as close, differences};
use crate::session::{last as run, session};

const TABLES: [&str; 3] = [
    "CREATE TABLE w AS SELECT * FROM (VALUES (0, 0, 0.5), (0, 1, -0.3), (1, 0, 0.8), (1, 1, 0.1)) AS t(inp, out, val)",
    "CREATE TABLE x AS SELECT * FROM (VALUES (0, 0, 1.0), (0, 1, 2.0), (1, 0, -1.0), (1, 1, 0.5), (2, 0, 0.3), (2, 1, 0.7)) AS t(sample, inp, val)",
    "CREATE TABLE y AS SELECT * FROM (VALUES (0, 0, 0.1), (0, 1, 0.2), (1, 0, -0.4), (1, 1, 0.3), (2, 0, 0.0), (2, 1, 1.0)) AS t(sample, out, val)",
];

/// The values of `w`, by inp and out.
const W: [f64; 4] = [0.5, -0.3, 0.8, 0.1];

async fn tables() -> Result<SessionContext> {
    session(TABLES).await
}

#[tokio::test]
async fn square_of_a_sum() -> Result<()> {
    let ctx = tables().await?;
    close(
        &run(&ctx, "SELECT inp, out, val, grad((SELECT SUM(val * val) FROM w), val) AS d FROM w ORDER BY inp, out")
            .await?,
        &[1.0, -0.6, 1.6, 0.2],
    );
    close(
        &run(&ctx, "SELECT grad((SELECT MAX(val) FROM w) * 3 + val, val) AS d FROM w ORDER BY inp, out").await?,
        &[1.0, 1.0, 4.0, 1.0],
    );
    // The average moves by a quarter of what the row does.
    let average = W.iter().sum::<f64>() / 4.0;
    let sql = "SELECT grad(power((SELECT AVG(val) FROM w) - val, 2), val) AS d FROM w ORDER BY inp, out";
    close(&run(&ctx, sql).await?, &W.map(|w| 2.0 * (average - w) * (0.25 - 1.0)));
    Ok(())
}

const LOSS: &str = "WITH h AS (SELECT x.sample, w.out, tanh(SUM(x.val * w.val)) AS val
               FROM x JOIN w ON x.inp = w.inp GROUP BY x.sample, w.out),
      loss AS (SELECT AVG(power(h.val - y.val, 2)) AS l FROM h JOIN y ON h.sample = y.sample AND h.out = y.out)";

#[tokio::test]
async fn network_of_one_layer() -> Result<()> {
    let ctx = tables().await?;
    let gradient =
        run(&ctx, &format!("{LOSS} SELECT inp, out, grad((SELECT l FROM loss), val) AS d FROM w ORDER BY inp, out"))
            .await?;
    let mut expected = vec![];
    for (inp, out) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let moved_by = async |step: f64| {
            let moved = format!(
                "(SELECT inp, out, CASE WHEN inp = {inp} AND out = {out} THEN val + {step:?} ELSE val END AS val FROM w)"
            );
            let loss = LOSS.replace("JOIN w ON", &format!("JOIN {moved} w ON"));
            run(&ctx, &format!("{loss} SELECT l FROM loss")).await
        };
        expected.extend(differences(moved_by).await?.into_iter().flatten());
    }
    close(&gradient, &expected);
    assert!(expected.iter().all(|derivative| derivative.abs() > 1e-3), "{expected:?}");
    Ok(())
}

#[tokio::test]
async fn training_in_one_statement() -> Result<()> {
    let ctx = tables().await?;
    let loss = LOSS.replace("JOIN w ON", "JOIN state w ON");
    let sql = format!(
        "WITH RECURSIVE state AS (
            SELECT 0 AS step, inp, out, val FROM w
            UNION ALL
            SELECT * FROM ({loss} SELECT step + 1, inp, out, val - 0.5 * grad((SELECT l FROM loss), val) FROM state WHERE step < 20) s)
         SELECT inp, out, val FROM state WHERE step = 20 ORDER BY inp, out"
    );
    let trained = run(&ctx, &sql).await?;
    // The same by statements.
    ctx.sql("CREATE TABLE p AS SELECT * FROM w").await?.collect().await?;
    let loss = LOSS.replace("JOIN w ON", "JOIN p w ON");
    for _ in 0..20 {
        let next = format!("{loss} SELECT inp, out, val - 0.5 * grad((SELECT l FROM loss), val) AS val FROM p");
        let next = ctx.sql(&next).await?.collect().await?;
        ctx.deregister_table("p")?;
        let schema = next[0].schema();
        ctx.register_table("p", std::sync::Arc::new(datafusion::datasource::MemTable::try_new(schema, vec![next])?))?;
    }
    let expected: Vec<_> =
        run(&ctx, "SELECT val FROM p ORDER BY inp, out").await?.into_iter().map(|x| x.unwrap()).collect();
    close(&trained, &expected);
    Ok(())
}

#[tokio::test]
async fn norm_of_a_gradient() -> Result<()> {
    let ctx = tables().await?;
    let sql = "SELECT grad((SELECT SUM(g * g) FROM (SELECT grad((SELECT SUM(val * val * val) FROM w), val) AS g FROM w) s), val) AS d
               FROM w ORDER BY inp, out";
    let values = W.map(|x| 36.0 * x.powi(3));
    close(&run(&ctx, sql).await?, &values);
    let sql = "SELECT grad((SELECT SUM(g * g) FROM (SELECT grad((SELECT power(SUM(val * val), 2) FROM w), val) AS g FROM w) s), val) AS d
               FROM w ORDER BY inp, out";
    let square: f64 = W.iter().map(|x| x * x).sum();
    // g = 4 q x with q the sum of squares, so that the sum of g * g is 16 q^3, and its derivative 96 q^2 x.
    let values = W.map(|x| 96.0 * square * square * x);
    close(&run(&ctx, sql).await?, &values);
    Ok(())
}

/// Every reference to a relation has the derivative by the cell of its own row.
#[tokio::test]
async fn several_references_to_one_relation() -> Result<()> {
    let ctx = tables().await?;
    let by = |by: &str, from: &str| {
        let loss = "(SELECT SUM(val * val) FROM w)";
        format!(
            "SELECT grad({loss}, a.val) AS da, grad({loss}, b.val) AS db, grad({loss}, {by}) - 2 * {by} AS zero FROM {from}"
        )
    };
    for from in [
        "w a CROSS JOIN w b",
        "w a JOIN w b ON a.inp = b.out",
        "(SELECT val, inp FROM w) a CROSS JOIN (SELECT out, val FROM w) b",
        "(SELECT val AS first, val FROM w) a CROSS JOIN w b",
    ] {
        for variable in ["a.val", "b.val"] {
            let found = run(&ctx, &by(variable, from)).await?;
            assert!(found.len() >= 4, "{found:?}");
            close(&found, &vec![0.0; found.len()]);
        }
    }
    Ok(())
}

/// Columns of several relations of which one comes first in its own.
#[tokio::test]
async fn several_relations() -> Result<()> {
    let ctx = tables().await?;
    ctx.sql("CREATE TABLE u AS SELECT * FROM (VALUES (0.5, 1), (2.0, 2)) AS t(val, k)").await?.collect().await?;
    ctx.sql("CREATE TABLE v AS SELECT * FROM (VALUES (3.0, 1), (-1.0, 2)) AS t(val, k)").await?.collect().await?;
    let loss = "(SELECT SUM(u.val * v.val) FROM u JOIN v ON u.k = v.k)";
    let sql = format!(
        "SELECT u.k, v.k, grad({loss}, u.val) AS du, grad({loss}, v.val) AS dv FROM u CROSS JOIN v ORDER BY u.k, v.k"
    );
    close(&run(&ctx, &sql).await?, &[0.5, 2.0, 0.5, 2.0]);
    let sql = format!(
        "SELECT u.k, v.k, grad({loss}, v.val) AS dv, grad({loss}, u.val) AS du FROM u CROSS JOIN v ORDER BY u.k, v.k"
    );
    close(&run(&ctx, &sql).await?, &[3.0, 3.0, -1.0, -1.0]);
    Ok(())
}

/// Derivatives by a column of one row of what gradients by row compute: a Hessian times a direction.
#[tokio::test]
async fn forward_over_reverse() -> Result<()> {
    let ctx = tables().await?;
    let wm = "WITH e AS (SELECT 0.25 AS eps), wm AS (SELECT w.inp, w.out, e.eps, w.val + e.eps * w.val AS val FROM w CROSS JOIN e),
              loss AS (SELECT SUM(val * val) AS l FROM wm),
              g AS (SELECT *, grad((SELECT l FROM loss), val) AS g FROM wm)";
    let of = |derivative: fn(f64) -> f64| W.map(derivative);
    for (call, from, expected) in [
        ("grad(val * val, eps) + grad((SELECT l FROM loss), val)", "wm", of(|w| 2.5 * w * w + 2.5 * w)),
        ("grad(val + g, eps)", "g", of(|w| 3.0 * w)),
        ("grad(g, eps)", "g", of(|w| 2.0 * w)),
        ("jvp(g * g, eps, 3.0)", "g", of(|w| 2.0 * 2.5 * w * 2.0 * w * 3.0)),
        ("grad(grad((SELECT l FROM loss), val), eps)", "wm", of(|w| 2.0 * w)),
        ("grad((SELECT l FROM loss), val) + (SELECT l FROM loss) * 0", "wm", of(|w| 2.5 * w)),
    ] {
        close(&run(&ctx, &format!("{wm} SELECT {call} AS d FROM {from} ORDER BY inp, out")).await?, &expected);
    }
    // Of three layers the second is read by itself and by the third, and the rows are numbered once.
    let deep = format!(
        "{wm}, s AS (SELECT SUM(val * val) AS s FROM wm), f AS (SELECT SUM(power(val * s, 2)) AS l FROM wm CROSS JOIN s)
         SELECT grad(d, eps) AS h FROM (SELECT inp, out, eps, grad((SELECT l FROM f), val) AS d FROM wm) AS q ORDER BY inp, out"
    );
    // The gradient is 6 s^2 val, with s = 0.99 (1 + eps)^2 and val = w (1 + eps).
    let h = W.map(|w| 6.0 * 0.99_f64.powi(2) * 5.0 * 1.25_f64.powi(4) * w);
    close(&run(&ctx, &deep).await?, &h);
    // Which of several cells moves, nobody knows.
    ctx.sql("CREATE TABLE several AS SELECT * FROM (VALUES (0.25), (0.5)) AS t(eps)").await?.collect().await?;
    let several = wm.replace("SELECT 0.25 AS eps", "SELECT eps FROM several");
    let error =
        run(&ctx, &format!("{several} SELECT grad(g, eps) AS d FROM g")).await.err().map(|error| error.to_string());
    assert!(error.as_ref().is_some_and(|error| error.contains("2 cells of eps")), "{error:?}");
    Ok(())
}

/// `jvp` of a subquery is the sum of its gradient times the direction.
#[tokio::test]
async fn along_directions() -> Result<()> {
    let ctx = tables().await?;
    let sum = |sql: &str| format!("SELECT {sql} AS d FROM w ORDER BY inp, out");
    // 2 * (0.5 * 1 - 0.3 * 2 + 0.8 * 2 + 0.1 * 3)
    close(&run(&ctx, &sum("jvp((SELECT SUM(val * val) FROM w), val, inp + out + 1)")).await?, &[3.6; 4]);
    close(&run(&ctx, &sum("jvp((SELECT SUM(val * val) FROM w), val, 2.0)")).await?, &[4.4; 4]);
    close(
        &run(&ctx, &sum("jvp((SELECT SUM(val) FROM w) * val, val, inp + 1)")).await?,
        &[1.1 + 6.0 * 0.5, 1.1 - 6.0 * 0.3, 2.2 + 6.0 * 0.8, 2.2 + 6.0 * 0.1],
    );
    let sql = "SELECT jvp((SELECT SUM(w.val * x.val) FROM w JOIN x ON w.inp = x.inp AND w.out = x.sample), w.val, 1.0, x.val, 1.0) AS d
               FROM w JOIN x ON w.inp = x.inp AND w.out = x.sample LIMIT 1";
    // The values of x at (0, 0), (1, 0), (0, 1) and (1, 1), and all those of w.
    close(&run(&ctx, sql).await?, &[1.0 - 1.0 + 2.0 + 0.5 + 1.1]);
    let unknown =
        "jvp((SELECT SUM(val) FROM w WHERE inp = 0), val, CASE WHEN inp = 0 AND out = 1 THEN NULL ELSE 1.0 END)";
    assert_eq!(run(&ctx, &sum(unknown)).await?, [None; 4]);
    let error =
        run(&ctx, "SELECT jvp((SELECT SUM(val) FROM w), w.val, y.val) AS d FROM w JOIN y ON w.out = y.out").await;
    let error = error.err().map(|error| error.to_string());
    assert!(error.as_ref().is_some_and(|error| error.contains("does not stand beside")), "{error:?}");
    Ok(())
}

/// What takes no part contributes 0, also where its derivative is infinite.
#[tokio::test]
async fn infinite_derivatives_that_are_not_asked_for() -> Result<()> {
    let ctx = tables().await?;
    ctx.sql("CREATE TABLE z AS SELECT * FROM (VALUES (1, 0.0), (2, 4.0)) AS t(k, val)").await?.collect().await?;
    for (loss, expected) in [
        ("SELECT MAX(sqrt(val)) FROM z", [0.0, 0.25]),
        ("SELECT SUM(ln(val)) FILTER (WHERE val > 0) FROM z", [0.0, 0.25]),
        ("SELECT SUM(s) FROM (SELECT k, SUM(val) AS s, SUM(ln(val)) AS l FROM z GROUP BY k) AS q", [1.0, 1.0]),
        (
            "SELECT SUM(CASE WHEN k = 1 THEN a ELSE b END) FROM (SELECT k, MAX(val) AS a, MAX(ln(val)) AS b FROM z GROUP BY k) AS q",
            [1.0, 0.25],
        ),
    ] {
        close(&run(&ctx, &format!("SELECT k, grad(({loss}), val) AS d FROM z ORDER BY k")).await?, &expected);
    }
    Ok(())
}

/// Groups by several sets of keys, and aggregates that take the value of one row.
#[tokio::test]
async fn grouping_sets_and_ordered_aggregates() -> Result<()> {
    let ctx = tables().await?;
    let rows = "(VALUES (1, 1, 1.0), (2, 1, 2.0), (3, 2, 3.0), (4, 2, NULL), (5, NULL, 5.0)) AS v(id, k, y)";
    ctx.sql(&format!("CREATE TABLE d AS SELECT * FROM {rows}")).await?.collect().await?;
    for (value, expected) in [
        ("SUM(s * s) FROM (SELECT k, SUM(y) AS s FROM d GROUP BY ROLLUP (k)) AS q", [28.0, 28.0, 28.0, 32.0]),
        (
            "SUM(s * s * (1 + g)) FROM (SELECT grouping(k) AS g, SUM(y) AS s FROM d GROUP BY CUBE (k, id)) AS q",
            [56.0, 62.0, 68.0, 84.0],
        ),
        (
            "SUM(f * f) FROM (SELECT k, first_value(y ORDER BY id DESC) AS f FROM d GROUP BY k) AS q",
            [0.0, 4.0, 0.0, 10.0],
        ),
        (
            "SUM(f * f) FROM (SELECT k, last_value(y ORDER BY id) IGNORE NULLS AS f FROM d GROUP BY k) AS q",
            [0.0, 4.0, 6.0, 10.0],
        ),
        ("SUM(f * f) FROM (SELECT k, nth_value(y, 2 ORDER BY id) AS f FROM d GROUP BY k) AS q", [0.0, 4.0, 0.0, 0.0]),
    ] {
        let sql = format!("SELECT grad((SELECT {value}), y) AS g FROM d WHERE y IS NOT NULL ORDER BY id");
        close(&run(&ctx, &sql).await?, &expected);
    }
    Ok(())
}

/// A variable that rows of a group have in common moves in all of them, and one of a union where it comes from.
#[tokio::test]
async fn variables_of_groups_and_unions() -> Result<()> {
    let ctx = tables().await?;
    let rows = "(VALUES (1, 1.0, 1, 2.0), (2, 1.0, 2, 3.0), (3, 2.0, 1, 4.0), (4, NULL, 1, 5.0), (5, 2.0, 1, 1.0)) AS v(id, k, j, y)";
    ctx.sql(&format!("CREATE TABLE t AS SELECT * FROM {rows}")).await?.collect().await?;
    ctx.sql("CREATE TABLE u AS SELECT * FROM (VALUES (1, 5.0), (2, 1.0)) AS v(id, k)").await?.collect().await?;
    let by_k = "grad((SELECT SUM(v.k * v.k * v.y) FROM t v), k) AS d";
    let both = "grad((SELECT SUM(k * k * y) FROM t) + (SELECT SUM(k * k * k) FROM u), q.k) AS d";
    for (select, expected) in [
        (format!("SELECT k, {by_k} FROM t GROUP BY k"), vec![10.0, 20.0]),
        (format!("SELECT k, SUM(y) AS s, {by_k} FROM t GROUP BY k HAVING SUM(y) < 6"), vec![10.0, 20.0]),
        (format!("SELECT k, j, {by_k} FROM t GROUP BY k, j"), vec![4.0, 6.0, 20.0]),
        (format!("SELECT k, {by_k} FROM (SELECT DISTINCT k FROM t WHERE id <> 5) q"), vec![10.0, 16.0]),
        (format!("SELECT k, {by_k} FROM t JOIN (VALUES (1), (1), (2)) AS x(n) ON n = j GROUP BY k"), vec![10.0, 20.0]),
        (format!("SELECT k, id, {both} FROM (SELECT k, id FROM t UNION ALL SELECT k, id + 10 FROM u) q"), vec![
            3.0, 4.0, 6.0, 4.0, 16.0, 75.0,
        ]),
        (format!("SELECT k, id, {both} FROM (SELECT k, id FROM t WHERE id = 1 UNION ALL SELECT k, id + 10 FROM t) q"), vec![
            4.0, 4.0, 6.0, 4.0, 16.0,
        ]),
        (format!("SELECT k, {both} FROM (SELECT k FROM t UNION SELECT k FROM u) q"), vec![13.0, 20.0, 75.0]),
        (format!("SELECT k, id, {by_k} FROM (SELECT DISTINCT ON (j) j, k, id FROM t ORDER BY j, id) q"), vec![4.0, 6.0]),
        (format!("SELECT DISTINCT ON (j) j AS k, id, {by_k} FROM t ORDER BY j, id"), vec![4.0, 6.0]),
        (format!("SELECT k, n, {by_k} FROM (SELECT k, unnest([1, j]) AS n FROM t WHERE id = 2) q"), vec![6.0, 6.0]),
        ("SELECT k, jvp((SELECT SUM(k * k * y) FROM t), k, 2.0) AS d FROM (SELECT k FROM t UNION ALL SELECT k FROM t) q LIMIT 1".to_owned(), vec![60.0]),
        (format!("SELECT k, grad(SUM(k * k) OVER (), k) AS g, {by_k} FROM t GROUP BY k"), vec![10.0, 20.0]),
        (format!("SELECT k, {by_k}, grad(SUM(k * k) OVER (), k) AS g FROM t GROUP BY k"), vec![2.0, 4.0]),
    ] {
        let sql = format!("SELECT * FROM ({select}) AS s WHERE k IS NOT NULL ORDER BY k, d");
        close(&run(&ctx, &sql).await?, &expected);
    }
    // Where the cells of a group are not those of one value.
    let repeated = format!("SELECT k, {by_k} FROM t JOIN (VALUES (1), (2)) AS x(n) ON n <= j GROUP BY k, n");
    let error = run(&ctx, &repeated).await.err().map(|error| error.to_string());
    assert!(error.as_ref().is_some_and(|error| error.contains("which rows of a variable are in a group")), "{error:?}");
    for twice in [
        "SELECT k FROM t UNION SELECT k FROM t WHERE k > 1",
        "SELECT k FROM (SELECT k FROM t UNION ALL SELECT k FROM t) q GROUP BY k",
    ] {
        let error = run(&ctx, &format!("SELECT k, {by_k} FROM ({twice}) q")).await.err().map(|error| error.to_string());
        assert!(error.as_ref().is_some_and(|error| error.contains("by several branches of a UNION")), "{error:?}");
    }
    Ok(())
}

#[tokio::test]
async fn relations_that_several_places_read_are_computed_once() -> Result<()> {
    let ctx = tables().await?;
    let sql = "WITH j AS (SELECT x.sample AS s, x.val * w.val AS v FROM x JOIN w ON x.inp = w.inp),
                    loss AS (SELECT SUM(a.v * b.v) AS l FROM j a JOIN j b ON a.s = b.s)
               SELECT inp, out, grad((SELECT l FROM loss), val) AS d FROM w ORDER BY inp, out";
    close(&run(&ctx, sql).await?, &[3.914, 3.914, 9.216, 9.216]);
    let plan = pretty_format_batches(&ctx.sql(&format!("EXPLAIN {sql}")).await?.collect().await?)?.to_string();
    // The product of both references, and what it gives to each of them.
    assert_eq!(plan.matches("computes ∂cotangents").count(), 1, "{plan}");
    // The join of x and w.
    let joins = plan.lines().filter(|line| line.contains("UniqueKeyJoinExec") && line.contains("∂inp"));
    assert_eq!(joins.count(), 1, "{plan}");
    Ok(())
}

#[tokio::test]
async fn rows_that_contribute_nothing() -> Result<()> {
    let ctx = tables().await?;
    let rows = "(0, 2.0), (0, 3.0), (1, NULL), (1, 5.0), (2, 7.0), (NULL, 1.0)";
    ctx.sql(&format!("CREATE TABLE n AS SELECT * FROM (VALUES {rows}) AS t(k, val)")).await?.collect().await?;
    for (value, expected) in [
        ("a.val * b.val", [Some(0.0), Some(10.0), Some(10.0), Some(10.0), Some(14.0), None]),
        ("coalesce(a.val * b.val, 0) + a.val", [Some(1.0), Some(12.0), Some(12.0), Some(12.0), Some(15.0), None]),
    ] {
        let loss = format!("SELECT SUM({value}) FROM n a LEFT JOIN n b ON a.k = b.k");
        let gradient = run(&ctx, &format!("SELECT val, grad(({loss}), val) AS d FROM n ORDER BY val")).await?;
        assert_eq!(gradient, expected);
    }
    Ok(())
}

/// A correlated subquery beside a gradient by row stays as it is, and so does one that DataFusion does not take apart, which is refused.
#[tokio::test]
async fn correlated_subqueries() -> Result<()> {
    let ctx = tables().await?;
    let gradient = "grad((SELECT SUM(val * val) FROM w), val)";
    let beside =
        format!("SELECT {gradient} + (SELECT SUM(v.val) FROM w v WHERE v.out = w.out) AS d FROM w ORDER BY inp, out");
    close(&run(&ctx, &beside).await?, &[1.0 + 1.3, -0.6 - 0.2, 1.6 + 1.3, 0.2 - 0.2]);
    for inside in [
        "grad((SELECT SUM(v.val) FROM w v WHERE v.out > w.out), val)",
        "grad((SELECT SUM(v.val) FROM w v) * (SELECT SUM(v.val) FROM w v WHERE v.out > w.out), val)",
        "jvp(val + (SELECT SUM(v.val) FROM w v WHERE v.out > w.out), val, 1.0)",
    ] {
        let error = run(&ctx, &format!("SELECT {inside} AS d FROM w")).await.err().map(|error| error.to_string());
        assert!(error.as_ref().is_some_and(|error| error.contains("Write it as a join")), "{error:?}");
    }
    Ok(())
}
