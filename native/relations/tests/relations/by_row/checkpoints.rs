//! Gradients by row through recursive queries of which some iterations are kept, and those between are computed again.

use datafusion::arrow::array::{Array, ArrayRef, Float64Array, Int64Array};
use datafusion::arrow::datatypes::DataType;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryPool};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::logical_expr::{ColumnarValue, Volatility, create_udf};
use datafusion::physical_plan::displayable;
use datafusion::prelude::{SessionConfig, SessionContext};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use super::recursions::{losses, tables};
use crate::differences::first_that_differs;
use crate::session::{last as run, registered};

async fn keep(ctx: &SessionContext, checkpoints: usize) -> Result<()> {
    ctx.sql(&format!("SET xql.checkpoints = {checkpoints}")).await?.collect().await.map(|_| ())
}

fn bits(values: &[Option<f64>]) -> Vec<Option<u64>> {
    values.iter().map(|value| value.map(f64::to_bits)).collect()
}

/// To the bit in one partition. In several, sums are of another order now and then.
#[tokio::test]
async fn gradients_do_not_depend_on_how_many_are_kept() -> Result<()> {
    let mut count = 0;
    for (name, ctes) in losses() {
        let gradient = format!("WITH RECURSIVE {ctes} SELECT grad((SELECT l FROM loss), val) AS d FROM w ORDER BY k");
        for (partitions, batch) in [(1, 8192), (3, 2)] {
            let ctx = tables(partitions, batch).await?;
            let all = run(&ctx, &gradient).await?;
            for checkpoints in [1, 2, 3, 7] {
                keep(&ctx, checkpoints).await?;
                let some = run(&ctx, &gradient).await?;
                match partitions {
                    1 => assert_eq!(bits(&some), bits(&all), "{name}, {checkpoints} of them: {some:?} {all:?}"),
                    _ => assert_eq!(first_that_differs(&some, &all, 1e-12), None, "{name}, {checkpoints} of them"),
                }
                count += 1;
            }
        }
    }
    assert!(count > 15 * 8);
    Ok(())
}

/// A field with neighbours, over so many steps, of which every one is observed or the last alone.
fn field(steps: usize, observed: &str) -> String {
    format!(
        "WITH RECURSIVE r AS (
            SELECT 0 AS step, k, val FROM w
            UNION ALL
            SELECT step + 1, s.k, AVG(sin(1.3 * r.val)) + 0.1 FROM r JOIN stencil s ON s.neighbour = r.k
            WHERE step < {steps} GROUP BY step, s.k),
        loss AS (SELECT SUM(val * val * k) AS l FROM r {observed})
        SELECT k, grad((SELECT l FROM loss), val) AS d FROM w ORDER BY k"
    )
}

#[tokio::test]
async fn any_number_of_many_iterations() -> Result<()> {
    let ctx = tables(1, 8192).await?;
    for observed in ["", "WHERE step = 41", "WHERE step % 10 = 3 OR step = 40"] {
        keep(&ctx, 0).await?;
        let gradient = field(41, observed);
        let all = run(&ctx, &gradient).await?;
        assert!(all.iter().flatten().all(|derivative| *derivative != 0.0));
        for checkpoints in (1..12).chain([20, 41, 42, 43, 100]) {
            keep(&ctx, checkpoints).await?;
            assert_eq!(bits(&run(&ctx, &gradient).await?), bits(&all), "{checkpoints} {observed}");
        }
    }
    Ok(())
}

/// Iterations after those that are observed are not computed again, and a plan shows how many are.
#[tokio::test]
async fn what_is_computed_again() -> Result<()> {
    let ctx = tables(1, 8192).await?;
    for (checkpoints, observed, again) in
        // With fewer than there are iterations, those between two are computed once more than these.
        [
            (0, "step = 16", 0),
            (100, "step = 16", 16),
            (4, "step = 16", 36),
            (100, "step = 4", 4),
            (1, "step = 0", 0),
        ]
    {
        keep(&ctx, checkpoints).await?;
        let analyzed =
            ctx.sql(&format!("EXPLAIN ANALYZE {}", field(16, &format!("WHERE {observed}")))).await?.collect().await?;
        let shown = datafusion::arrow::util::pretty::pretty_format_batches(&analyzed)?.to_string();
        assert!(shown.contains(&format!("iterations_computed_again={again}")), "{checkpoints} {observed}\n{shown}");
        assert!(shown.contains("iterations=17"), "{shown}");
        assert_eq!(
            shown.contains(&format!("RecursiveTapeExec: r, checkpoints={checkpoints}")),
            checkpoints > 0,
            "{shown}"
        );
    }
    Ok(())
}

/// A session whose memory is limited, with a field of so many cells.
async fn limited(limit: usize, cells: usize) -> Result<(SessionContext, Arc<dyn MemoryPool>)> {
    let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(limit));
    let runtime = RuntimeEnvBuilder::new().with_memory_pool(Arc::clone(&pool)).build_arc()?;
    // By default a sort takes ten megabytes in advance.
    let config = SessionConfig::new().with_target_partitions(1).with_sort_spill_reservation_bytes(0);
    let ctx = SessionContext::new_with_config_rt(config, runtime);
    let tables = [
        format!("CREATE TABLE w AS SELECT value AS k, sin(value) AS val FROM range(0, {cells})"),
        format!(
            "CREATE TABLE stencil AS SELECT a.value AS k, (a.value + b.value) % {cells} AS neighbour
             FROM range(0, {cells}) a CROSS JOIN range(0, 3) b"
        ),
    ];
    Ok((registered(ctx, tables).await?, pool))
}

/// The memory of a tape with all iterations does not suffice for many steps, and that of some does.
#[tokio::test(flavor = "multi_thread")]
async fn memory() -> Result<()> {
    let (ctx, pool) = limited(4 << 20, 1_000).await?;
    let gradient = field(100, "WHERE step = 100");
    let error = run(&ctx, &gradient).await.expect_err("the memory does not suffice");
    assert!(matches!(error.find_root(), DataFusionError::ResourcesExhausted(_)), "{error}");
    keep(&ctx, 10).await?;
    let some = run(&ctx, &gradient).await?;
    assert_eq!(some.len(), 1_000);
    // More than there are is as much as all.
    keep(&ctx, 1_000_000).await?;
    let (roomy, _) = limited(1 << 30, 1_000).await?;
    assert_eq!(bits(&some), bits(&run(&roomy, &gradient).await?));
    assert_eq!(pool.reserved(), 0);
    // The states that are kept count as well.
    let (tight, _) = limited(1 << 20, 1_000).await?;
    keep(&tight, 100).await?;
    let error = run(&tight, &gradient).await.expect_err("the memory does not suffice");
    assert!(matches!(error.find_root(), DataFusionError::ResourcesExhausted(_)), "{error}");
    Ok(())
}

/// A function that gives another number each time, and says that it does not.
#[tokio::test]
async fn iterations_that_are_others_the_second_time() -> Result<()> {
    let ctx = tables(1, 8192).await?;
    let calls = AtomicI64::new(0);
    let counting = create_udf(
        "counting",
        vec![DataType::Int64],
        DataType::Float64,
        Volatility::Stable,
        Arc::new(move |arguments: &[ColumnarValue]| {
            let numbers = ColumnarValue::values_to_arrays(arguments)?;
            let numbers = numbers[0].as_any().downcast_ref::<Int64Array>().map_or(0, |numbers| numbers.len());
            let call = calls.fetch_add(1, Ordering::Relaxed) as f64;
            Ok(ColumnarValue::Array(Arc::new(Float64Array::from(vec![call; numbers])) as ArrayRef))
        }),
    );
    ctx.register_udf(counting);
    let gradient = "WITH RECURSIVE r AS (
            SELECT 0 AS step, k, val, 0.0 AS seen FROM w
            UNION ALL SELECT step + 1, k, sin(val), counting(k) FROM r WHERE step < 5),
        loss AS (SELECT SUM(val) AS l FROM r)
        SELECT grad((SELECT l FROM loss), val) AS d FROM w ORDER BY k";
    assert_eq!(run(&ctx, gradient).await?.len(), 5);
    keep(&ctx, 2).await?;
    let error = run(&ctx, gradient).await.expect_err("iterations are others").to_string();
    assert!(error.contains("iteration 5 of the recursive query r has other rows the second time"), "{error}");
    assert!(error.contains("SET xql.checkpoints = 0"), "{error}");
    Ok(())
}

/// Of the rows of iterations those are kept that are read: the last ones here.
#[tokio::test]
async fn rows_that_nobody_reads_are_not_kept() -> Result<()> {
    let ctx = tables(1, 8192).await?;
    keep(&ctx, 2).await?;
    let plan = ctx.sql(&field(16, "WHERE step = 16")).await?.create_physical_plan().await?;
    datafusion::physical_plan::collect(Arc::clone(&plan), ctx.task_ctx()).await?;
    let shown = displayable(plan.as_ref()).indent(false).to_string();
    let tape = shown.lines().find(|line| line.contains("RecursiveTapeExec")).unwrap_or_default();
    assert!(tape.contains("output_rows=5,"), "{shown}");
    Ok(())
}
