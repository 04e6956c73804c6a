//! The imported function in SQL queries.

use std::sync::Arc;

use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::common::{Result, plan_err};
use datafusion::execution::FunctionRegistry;
use datafusion::logical_expr::simplify::ExprSimplifyResult;
use datafusion::logical_expr::{Expr, lit};
use datafusion::prelude::SessionContext;

use crate::common::{import, probe};

/// A session with a function that doubles its argument by `simplify` only, and three tables.
async fn session() -> Result<SessionContext> {
    let session = SessionContext::new();
    let double = probe(|mut args, info| match args.pop() {
        Some(arg) if info.nullable(&arg).is_ok() => Ok(ExprSimplifyResult::Simplified(arg * lit(2.0))),
        arg => plan_err!("the type of {arg:?} is not known"),
    });
    session.register_udf(import(&double));
    for statement in [
        "CREATE TABLE t (x DOUBLE, k INT) AS VALUES (1.0, 1), (2.0, 2)",
        "CREATE TABLE u (x DOUBLE, k INT) AS VALUES (10.0, 1), (20.0, 2)",
        "CREATE TABLE \"a.b\" (\"x.y\" DOUBLE) AS VALUES (5.0)",
    ] {
        session.sql(statement).await?.collect().await?;
    }
    Ok(session)
}

async fn rows(session: &SessionContext, query: &str) -> Result<String> {
    let batches = session.sql(query).await?.collect().await?;
    let table = pretty_format_batches(&batches)?.to_string();
    let cells = table.lines().skip(3).filter(|line| line.starts_with('|'));
    let cells = cells.map(|line| line.split_whitespace().filter(|cell| *cell != "|"));
    let lines: Vec<_> = cells.map(|cells| cells.collect::<Vec<_>>().join(" ")).collect();
    Ok(lines.join("; "))
}

fn run(query: &str) -> Result<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    runtime.block_on(async { rows(&session().await?, query).await })
}

#[test]
fn queries_of_many_shapes() -> Result<()> {
    for (query, expected) in [
        ("SELECT probe(x + k) FROM t ORDER BY k", "4.0; 8.0"),
        ("SELECT probe(t.x * u.x) FROM t JOIN u USING (k) ORDER BY k", "20.0; 80.0"),
        ("SELECT probe(\"x.y\") FROM \"a.b\"", "10.0"),
        ("SELECT probe(\"a.b\".\"x.y\" + 1) FROM \"a.b\"", "12.0"),
        ("SELECT sum(probe(x)) FROM t", "6.0"),
        ("SELECT sum(probe(x)) OVER (ORDER BY k) FROM t ORDER BY k", "2.0; 6.0"),
        ("SELECT probe((SELECT max(x) FROM u) * x) FROM t ORDER BY k", "40.0; 80.0"),
        ("SELECT (SELECT max(probe(u.x)) FROM u WHERE u.k = t.k) FROM t ORDER BY k", "20.0; 40.0"),
        ("SELECT k FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.k = t.k AND u.x < probe(t.x * 5.5))", "1; 2"),
        ("SELECT k FROM t WHERE probe(x) > 1 AND k IN (SELECT k FROM u WHERE x > probe(5.5))", "2"),
        ("SELECT probe(probe(x)) FROM t ORDER BY k", "4.0; 8.0"),
        (
            "WITH RECURSIVE r AS (SELECT 1.0 AS x UNION ALL SELECT probe(x) FROM r WHERE x < 8) \
             SELECT max(x) FROM r",
            "8.0",
        ),
        ("SELECT probe(CAST(array_length([x, x]) AS DOUBLE)) FROM t ORDER BY k", "4.0; 4.0"),
    ] {
        assert_eq!(run(query)?, expected, "{query}");
    }
    Ok(())
}

#[test]
fn nothing_is_left_of_the_function_in_the_plan() -> Result<()> {
    let plan = run("EXPLAIN SELECT probe(x) FROM t WHERE probe(x) > 1")?;
    assert!(!plan.contains("probe(t.x) "), "{plan}");
    assert!(!plan.contains("probe(x@"), "{plan}");
    Ok(())
}

#[test]
fn placeholders_cross() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    runtime.block_on(async {
        let session = session().await?;
        let prepare = "PREPARE q(DOUBLE) AS SELECT probe(x * $1) FROM t ORDER BY k";
        session.sql(prepare).await?.collect().await?;
        assert_eq!(rows(&session, "EXECUTE q(3)").await?, "6.0; 12.0");
        Ok(())
    })
}

#[test]
fn the_provider_is_called_with_the_dataframe_api() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    runtime.block_on(async {
        let session = session().await?;
        let probe: Arc<_> = session.udf("probe")?;
        let doubled: Expr = probe.call(vec![datafusion::prelude::col("x")]);
        let batches = session.table("t").await?.select(vec![doubled])?.collect().await?;
        assert_eq!(batches.iter().map(|batch| batch.num_rows()).sum::<usize>(), 2);
        Ok(())
    })
}
