//! Gradients by row through the iterations of recursive queries.

use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::error::Result;
use datafusion::prelude::{SessionConfig, SessionContext};

use crate::differences::{assert_close as close, differences, first_that_differs};
use crate::session::{last as run, session_of};

const TABLES: [&str; 4] = [
    "CREATE TABLE w0 AS SELECT * FROM (VALUES (0, 0.5), (1, -0.3), (2, 0.8), (3, 0.1), (4, 1.2)) AS t(k, val)",
    "CREATE TABLE w AS SELECT * FROM w0",
    "CREATE TABLE y AS SELECT * FROM (VALUES (1, 0, 0.4), (1, 2, 0.3), (2, 1, -0.2), (3, 3, 0.7), (3, 4, 0.9)) AS t(step, k, val)",
    "CREATE TABLE stencil AS SELECT k, role, (k + shift + 5) % 5 AS neighbour
     FROM (SELECT k FROM w0) CROSS JOIN (VALUES ('ahead', 1), ('behind', -1), ('twice', -2), ('here', 0)) AS r(role, shift)",
];

/// What the rows of `r` are after four steps, and their sum.
const SUM: &str = "r AS (SELECT 0 AS step, k, val FROM w UNION ALL SELECT step + 1, k, sin(val) FROM r WHERE step < 4),
    loss AS (SELECT SUM(val) AS l FROM r WHERE step = 4)";

/// A session with the tables that the losses read.
pub async fn tables(partitions: usize, batch: usize) -> Result<SessionContext> {
    session_of(SessionConfig::new().with_target_partitions(partitions).with_batch_size(batch), TABLES).await
}

async fn execute(ctx: &SessionContext, sql: &str) -> Result<()> {
    ctx.sql(sql).await?.collect().await.map(|_| ())
}

/// The derivatives of [`SUM`] by the cells of a table of these values: of four sines, one inside the other.
fn derivatives_of_sum(values: &[f64]) -> Vec<f64> {
    let derivative = |value: &f64| {
        let (mut x, mut product) = (*value, 1.0);
        for _ in 0..4 {
            (x, product) = (x.sin(), product * x.cos());
        }
        product
    };
    values.iter().map(derivative).collect()
}

const VALUES: [f64; 5] = [0.5, -0.3, 0.8, 0.1, 1.2];

/// Where the gradient of a loss by the cells of `w` differs from differences.
async fn compared(ctes: &str, partitions: usize, batch: usize) -> Result<Option<String>> {
    let ctx = tables(partitions, batch).await?;
    let gradient = "SELECT grad((SELECT l FROM loss), val) AS d FROM w ORDER BY k";
    let gradient = run(&ctx, &format!("WITH RECURSIVE {ctes} {gradient}")).await?;
    let mut expected = vec![];
    for k in 0..VALUES.len() {
        let moved_by = async |step: f64| {
            let moved = format!("CASE WHEN k = {k} THEN val + {step:?} ELSE val END AS val");
            execute(&ctx, &format!("CREATE OR REPLACE TABLE w AS SELECT k, {moved} FROM w0")).await?;
            // Without a derivative DataFusion 54 takes away columns that only the recursion itself reads, and fails.
            let value = "SELECT grad(one, one), l FROM loss CROSS JOIN (SELECT 1.0 AS one) o";
            run(&ctx, &format!("WITH RECURSIVE {ctes} {value}")).await
        };
        expected.extend(differences(moved_by).await?);
    }
    let difference = first_that_differs(&gradient, &expected, 1e-8);
    Ok(difference.map(|difference| format!("{difference}: {gradient:?} {expected:?}")))
}

/// The losses: what each is of, and its CTEs.
pub fn losses() -> impl Iterator<Item = (&'static str, &'static str)> {
    let cases = include_str!("recursions.sql").split("-- ").skip(1).filter_map(|case| case.split_once('\n'));
    cases.map(|(name, ctes)| (name, ctes.trim()))
}

/// Each loss in its file, as a list of CTEs below a line that says what it is of, in one partition and in several with small batches.
#[tokio::test]
async fn losses_against_differences() -> Result<()> {
    let mut failed = vec![];
    let mut count = 0;
    for (name, ctes) in losses() {
        count += 1;
        for (partitions, batch) in [(1, 8192), (3, 2)] {
            match compared(ctes, partitions, batch).await {
                Ok(None) => {}
                other => failed.push(format!("{name} ({partitions} partitions): {other:?}")),
            }
        }
    }
    assert!(count > 15 && failed.is_empty(), "{}", failed.join("\n"));
    Ok(())
}

#[tokio::test]
async fn in_statements_of_every_kind() -> Result<()> {
    let ctx = tables(2, 8192).await?;
    let expected = derivatives_of_sum(&VALUES);
    let gradient = format!("WITH RECURSIVE {SUM} SELECT k, grad((SELECT l FROM loss), val) AS d FROM w");
    execute(&ctx, &format!("CREATE TABLE made AS {gradient}")).await?;
    close(&run(&ctx, "SELECT d FROM made ORDER BY k").await?, &expected);
    execute(&ctx, &format!("INSERT INTO made {gradient}")).await?;
    close(&run(&ctx, "SELECT SUM(d) / 2 AS d FROM made GROUP BY k ORDER BY k").await?, &expected);
    execute(&ctx, &format!("CREATE VIEW seen AS {gradient}")).await?;
    close(&run(&ctx, "SELECT d FROM seen ORDER BY k").await?, &expected);
    let plan = ctx.sql(&format!("EXPLAIN {gradient}")).await?.collect().await?;
    let plan = pretty_format_batches(&plan)?.to_string();
    assert!(plan.contains("RecursiveTapeExec: r") && plan.contains("AdjointExec: r"), "{plan}");
    // A statement that is prepared has as many iterations as it is told to.
    let prepared = gradient.replace("step < 4", "step < $1").replace("step = 4", "step = $1");
    execute(&ctx, &format!("PREPARE steps AS {prepared} ORDER BY k")).await?;
    close(&run(&ctx, "EXECUTE steps(4)").await?, &expected);
    close(&run(&ctx, "EXECUTE steps(1)").await?, &VALUES.map(f64::cos));
    // The derivative along a direction is the sum of the gradient times the direction.
    let along = format!("WITH RECURSIVE {SUM} SELECT jvp((SELECT l FROM loss), val, k + 1) AS d FROM w LIMIT 1");
    let sum = expected.iter().zip(1..).map(|(derivative, k)| derivative * f64::from(k)).sum();
    close(&run(&ctx, &along).await?, &[sum]);
    Ok(())
}

/// A descent in one statement, whose steps each go through a recursion and back, and the same step by step.
#[tokio::test]
async fn inside_of_another_recursive_query() -> Result<()> {
    let ctx = tables(2, 8192).await?;
    let loss = |of: &str| {
        format!(
            "WITH RECURSIVE r AS (SELECT 0 AS step, k, val FROM {of}
                                  UNION ALL SELECT step + 1, k, sin(val) + 0.1 * val * val FROM r WHERE step < 4),
                  loss AS (SELECT SUM(power(r.val - y.val, 2)) AS l FROM r JOIN y ON r.step = y.step AND r.k = y.k)"
        )
    };
    let next = "val - 0.1 * grad((SELECT l FROM loss), val)";
    let descent = format!(
        "WITH RECURSIVE state AS (SELECT 0 AS n, k, val FROM w
                                  UNION ALL SELECT * FROM ({} SELECT n + 1, k, {next} FROM state WHERE n < 3) q)
         SELECT val FROM state WHERE n = 3 ORDER BY k",
        loss("state")
    );
    let found = run(&ctx, &descent).await?;
    for (before, after) in [("w", "first"), ("first", "second"), ("second", "third")] {
        let statement = format!("CREATE TABLE {after} AS {} SELECT k, {next} AS val FROM {before}", loss(before));
        execute(&ctx, &statement).await?;
    }
    let expected: Vec<_> = run(&ctx, "SELECT val FROM third ORDER BY k").await?.into_iter().flatten().collect();
    assert_eq!(expected.len(), 5);
    close(&found, &expected);
    Ok(())
}

/// The variable may be a column of the recursive query itself, and columns of several tables are swept once.
#[tokio::test]
async fn by_columns_of_several_relations() -> Result<()> {
    let ctx = tables(2, 8192).await?;
    let rows =
        format!("WITH RECURSIVE {SUM} SELECT grad((SELECT SUM(val * val) FROM r), val) - 2 * val AS zero FROM r");
    close(&run(&ctx, &rows).await?, &[0.0; 25]);
    let both = "WITH RECURSIVE r AS (SELECT 0 AS step, w.k, w.val + y.val AS val FROM w JOIN y ON w.k = y.k
                                     UNION ALL SELECT step + 1, k, val * val FROM r WHERE step < 2),
                     loss AS (SELECT SUM(val) AS l FROM r WHERE step = 2)
                SELECT grad((SELECT l FROM loss), w.val) - 4 * power(w.val + y.val, 3)
                     + grad((SELECT l FROM loss), y.val) - 4 * power(w.val + y.val, 3) AS zero
                FROM w JOIN y ON w.k = y.k";
    close(&run(&ctx, both).await?, &[0.0; 5]);
    Ok(())
}

#[tokio::test]
async fn what_is_refused() -> Result<()> {
    let ctx = tables(2, 8192).await?;
    let noise =
        "SELECT step + 1, r.k, sin(val) + noise FROM r JOIN (SELECT k, random() AS noise FROM w0) d ON r.k = d.k";
    let of_sum = format!("WITH RECURSIVE {SUM}");
    for (before, statement, says) in [
        ("", of_sum.replace("UNION ALL", "UNION"), "r is a recursive query with UNION, which compares whole rows"),
        ("", of_sum.replace("SELECT step + 1, k, sin(val) FROM r", noise), "draws random numbers"),
        ("SET xql.share_relations = false", of_sum.clone(), "Run it there, without xql.share_relations = false"),
    ] {
        execute(&ctx, if before.is_empty() { "SELECT 1" } else { before }).await?;
        let statement = format!("{statement} SELECT grad((SELECT l FROM loss), val) AS d FROM w");
        let error = run(&ctx, &statement).await.err().map(|error| error.to_string());
        assert!(error.as_ref().is_some_and(|error| error.contains(says)), "{statement}\n{error:?}");
    }
    execute(&ctx, "SET xql.share_relations = true").await?;
    execute(&ctx, "SET xql.checkpoints = 2").await?;
    let drawn = of_sum.replace("sin(val)", "sin(val) + random()");
    let gradient = "SELECT grad((SELECT l FROM loss), val) AS d FROM w";
    let error = run(&ctx, &format!("{drawn} {gradient}")).await.expect_err("it draws").to_string();
    assert!(
        error.contains("UnsupportedRelationError: the iterations of the recursive query r draw random numbers"),
        "{error}"
    );
    execute(&ctx, "SET xql.checkpoints = 0").await?;
    assert_eq!(run(&ctx, &format!("{drawn} {gradient}")).await?.len(), 5);
    for (statement, says) in [(
        format!(
            "{of_sum}, g AS (SELECT grad((SELECT l FROM loss), val) AS d FROM w) SELECT grad((SELECT SUM(d * d) FROM g), val) FROM w"
        ),
        "r is a recursive query whose derivative by row is differentiated by row",
    )] {
        let error = run(&ctx, &statement).await.err().map(|error| error.to_string());
        assert!(error.as_ref().is_some_and(|error| error.contains(says)), "{statement}\n{error:?}");
    }
    Ok(())
}

/// A Hessian times a vector, forward over reverse, against differences of the gradient.
#[tokio::test]
async fn hessians_times_vectors() -> Result<()> {
    let mut count = 0;
    for (name, ctes) in losses() {
        let ctx = tables(3, 2).await?;
        let of_moved = with_word(ctes, "w", "wm");
        let moved = |eps: &str| {
            format!(
                "WITH RECURSIVE e AS (SELECT {eps} AS eps),
                 wm AS (SELECT k, eps, val + eps * sin(k + 1.0) AS val FROM w CROSS JOIN e), {of_moved}"
            )
        };
        let hessian =
            format!("{} SELECT grad(grad((SELECT l FROM loss), val), eps) AS d FROM wm ORDER BY k", moved("0.0"));
        let found = run(&ctx, &hessian).await?;
        let gradient = async |step: f64| {
            let gradient = "SELECT grad((SELECT l FROM loss), val) AS d FROM wm ORDER BY k";
            run(&ctx, &format!("{} {gradient}", moved(&format!("CAST({step:?} AS DOUBLE)")))).await
        };
        let expected = differences(gradient).await?;
        assert_eq!(first_that_differs(&found, &expected, 1e-7), None, "{name}: {found:?} {expected:?}");
        count += 1;
    }
    assert!(count > 15);
    Ok(())
}

/// A text with a word in the place of another one, where that stands alone.
fn with_word(text: &str, word: &str, by: &str) -> String {
    let is_letter = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(word) {
        let (before, after) = (rest[..at].chars().next_back().or(found.chars().next_back()), &rest[at + word.len()..]);
        let alone = !before.is_some_and(is_letter) && !after.chars().next().is_some_and(is_letter);
        found.push_str(&rest[..at]);
        found.push_str(if alone { by } else { word });
        rest = after;
    }
    found.push_str(rest);
    found
}
