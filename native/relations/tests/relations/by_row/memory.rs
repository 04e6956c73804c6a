//! What gradients by row keep in memory, and for how long.

use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::{Float64Type, Int64Type};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryPool};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::physical_plan::{ExecutionPlan, collect, execute_stream};
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::StreamExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::differences::assert_close;
use crate::session::registered;

const GRADIENT: &str = "WITH h AS (SELECT d.i, tanh(SUM(d.x * w.val)) AS val FROM d JOIN w ON d.k = w.k GROUP BY d.i),
    loss AS (SELECT SUM(power(h.val - m.top, 2)) AS l FROM h CROSS JOIN (SELECT MAX(val) AS top FROM h) m)
    SELECT w.k, grad((SELECT l FROM loss), w.val) AS d FROM w";

/// Through ten iterations, which all are kept until the gradient has come back through them.
const THROUGH_ITERATIONS: &str = "WITH RECURSIVE r AS (
        SELECT 0 AS n, d.i, d.k, d.x * w.val AS v FROM d JOIN w ON d.k = w.k
        UNION ALL
        SELECT n + 1, r.i, r.k, sin(r.v) + w.val FROM r JOIN w ON r.k = w.k WHERE n < 10),
    loss AS (SELECT SUM(v * v) AS l FROM r)
    SELECT w.k, grad((SELECT l FROM loss), w.val) AS d FROM w";

/// A session whose memory is limited, with `rows` data for each of ten weights.
async fn limited(limit: usize, rows: usize) -> Result<(SessionContext, Arc<dyn MemoryPool>)> {
    let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(limit));
    let runtime = RuntimeEnvBuilder::new().with_memory_pool(Arc::clone(&pool)).build_arc()?;
    let ctx = SessionContext::new_with_config_rt(SessionConfig::new().with_target_partitions(2), runtime);
    let tables = [
        "CREATE TABLE w AS SELECT value AS k, 0.1 * value AS val FROM range(0, 10)".to_owned(),
        format!(
            "CREATE TABLE d AS SELECT value / 10 AS i, value % 10 AS k, sin(value) AS x FROM range(0, {})",
            10 * rows
        ),
    ];
    let ctx = registered(ctx, tables).await?;
    Ok((ctx, pool))
}

async fn plan(ctx: &SessionContext, sql: &str) -> Result<Arc<dyn ExecutionPlan>> {
    ctx.sql(sql).await?.create_physical_plan().await
}

/// The values of the second column by the first.
async fn by_key(ctx: &SessionContext, plan: Arc<dyn ExecutionPlan>) -> Result<Vec<f64>> {
    let mut rows = vec![];
    for batch in collect(plan, ctx.task_ctx()).await? {
        let keys = batch.column(0).as_primitive::<Int64Type>();
        let values = batch.column(1).as_primitive::<Float64Type>();
        rows.extend((0..batch.num_rows()).map(|row| (keys.value(row), values.value(row))));
    }
    rows.sort_by_key(|(key, _)| *key);
    Ok(rows.into_iter().map(|(_, value)| value).collect())
}

fn close(a: &[f64], b: &[f64]) {
    assert_close(&a.iter().copied().map(Some).collect::<Vec<_>>(), b);
}

/// Waits until nothing is reserved any more: tasks that were cancelled end a moment later.
async fn released(pool: &Arc<dyn MemoryPool>) {
    let start = Instant::now();
    while pool.reserved() > 0 {
        assert!(start.elapsed() < Duration::from_secs(20), "{} bytes are kept", pool.reserved());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_kept_after_the_statement() -> Result<()> {
    let (ctx, pool) = limited(1 << 30, 1_000).await?;
    for gradient in [GRADIENT, THROUGH_ITERATIONS] {
        let own = plan(&ctx, gradient).await?;
        assert_eq!(by_key(&ctx, Arc::clone(&own)).await?.len(), 10);
        assert!(pool.reserved() > 0, "the plan keeps nothing");
        drop(own);
        released(&pool).await;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_kept_of_a_cancelled_statement() -> Result<()> {
    for (gradient, rows) in [(GRADIENT, 100_000), (THROUGH_ITERATIONS, 10_000)] {
        let (ctx, pool) = limited(1 << 30, rows).await?;
        let mut begun = false;
        for wait in [0, 5, 20, 50, 100, 200] {
            let mut stream = execute_stream(plan(&ctx, gradient).await?, ctx.task_ctx())?;
            let ended = tokio::time::timeout(Duration::from_millis(wait), stream.next()).await.is_ok();
            begun |= !ended && pool.reserved() > 0;
            drop(stream);
            released(&pool).await;
        }
        assert!(begun, "no statement was cancelled while it had reserved memory");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_that_is_too_small_gives_its_error() -> Result<()> {
    let (ctx, pool) = limited(1 << 20, 100_000).await?;
    for gradient in [GRADIENT, THROUGH_ITERATIONS] {
        let failed = collect(plan(&ctx, gradient).await?, ctx.task_ctx()).await;
        let error = failed.expect_err("the memory does not suffice");
        assert!(matches!(error.find_root(), DataFusionError::ResourcesExhausted(_)), "{error}");
        released(&pool).await;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_kept_after_an_error() -> Result<()> {
    let (ctx, pool) = limited(1 << 30, 1_000).await?;
    // Two rows for a scalar.
    let sql = "WITH h AS (SELECT d.i, SUM(d.x * w.val) AS val FROM d JOIN w ON d.k = w.k GROUP BY d.i)
        SELECT w.k, grad((SELECT val FROM h WHERE i < 2), w.val) AS d FROM w";
    let failed = collect(plan(&ctx, sql).await?, ctx.task_ctx()).await;
    assert!(failed.is_err());
    released(&pool).await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn executions_share_nothing() -> Result<()> {
    let (ctx, pool) = limited(1 << 30, 1_000).await?;
    for gradient in [GRADIENT, THROUGH_ITERATIONS] {
        let expected = by_key(&ctx, plan(&ctx, gradient).await?).await?;
        // Both are planned from the same logical plan. DataFusion 54 does not execute a physical plan with partitions twice.
        let frame = ctx.sql(gradient).await?;
        let again = frame.clone();
        let (a, b) = tokio::join!(frame.create_physical_plan(), again.create_physical_plan());
        let (a, b) = tokio::join!(by_key(&ctx, a?), by_key(&ctx, b?));
        close(&a?, &expected);
        close(&b?, &expected);
        released(&pool).await;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prepared_statement_reads_new_rows() -> Result<()> {
    let (ctx, pool) = limited(1 << 30, 10).await?;
    ctx.sql("PREPARE p AS SELECT k, grad((SELECT SUM(val * val) FROM w), val) AS d FROM w").await?.collect().await?;
    let first = by_key(&ctx, plan(&ctx, "EXECUTE p").await?).await?;
    close(&first, &(0..10).map(|k| 0.2 * f64::from(k)).collect::<Vec<_>>());
    ctx.sql("INSERT INTO w VALUES (10, 3.0)").await?.collect().await?;
    let second = by_key(&ctx, plan(&ctx, "EXECUTE p").await?).await?;
    close(&second, &(0..10).map(|k| 0.2 * f64::from(k)).chain([6.0]).collect::<Vec<_>>());
    released(&pool).await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_iteration_computes_afresh() -> Result<()> {
    let (ctx, pool) = limited(1 << 30, 10).await?;
    let sql = "WITH RECURSIVE s AS (
            SELECT 0 AS step, k, val FROM w
            UNION ALL
            SELECT * FROM (SELECT step + 1, k, val - 0.25 * grad((SELECT SUM(val * val) FROM s), val) FROM s WHERE step < 5) n)
        SELECT k, val FROM s WHERE step = 5";
    let expected: Vec<_> = (0..10).map(|k| 0.1 * f64::from(k) / 32.0).collect();
    close(&by_key(&ctx, plan(&ctx, sql).await?).await?, &expected);
    released(&pool).await;
    Ok(())
}
