//! Joins by unique keys against DataFusion's joins.

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::Int64Type;
use datafusion::common::{Result, assert_contains};
use datafusion::datasource::MemTable;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::GreedyMemoryPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::physical_plan::{ExecutionPlan, collect};
use datafusion::prelude::{SessionConfig, SessionContext};
use std::ops::Range;
use std::sync::Arc;
use xql_contraction::Contractions;

use super::draw::Draw;
use super::mutable_table::MutableTable;
use super::random::{KeyType, Values, add_table, cases, key, values_column};
use super::session::{contract, metric, plan_sql, show, texts};

/// Returns the rows of a plan as sorted text.
async fn rows(plan: &Arc<dyn ExecutionPlan>, context: &Arc<TaskContext>) -> Result<Vec<String>> {
    let mut found = vec![];
    for batch in collect(reset_plan_states(Arc::clone(plan))?, Arc::clone(context)).await? {
        found.extend(texts(batch.columns(), batch.num_rows())?);
    }
    found.sort();
    Ok(found)
}

/// Draws consecutive integers, shuffled half of the time.
fn numbers(draw: &mut Draw, rows: usize) -> ArrayRef {
    let first = *draw.pick(&[0, 0, 0, 0, 1, 30, -7, i64::MAX - rows as i64, i64::MIN]);
    let mut numbers: Vec<_> = (first..first + rows as i64).collect();
    if draw.percent(50) {
        (1..rows).for_each(|place| numbers.swap(place, draw.below(place + 1)));
    }
    Arc::new(Int64Array::from(numbers))
}

/// Draws two tables and a join of them.
fn draw_case(ctx: &SessionContext, draw: &mut Draw) -> Result<(Vec<MutableTable>, String)> {
    const KEYS: [KeyType; 6] =
        [KeyType::Int, KeyType::Small, KeyType::Unsigned, KeyType::Date, KeyType::Bool, KeyType::Wide];
    let mut tables = vec![];
    let (nulls, types) = (*draw.pick(&[0, 0, 10]), [*draw.pick(&KEYS), *draw.pick(&KEYS)]);
    let are_unique = draw.percent(60);
    let values = *draw.pick(&[1, 3, 40]);
    for name in ["a", "b"] {
        let most = *draw.pick(&[3, 40, 300]);
        let count = if draw.percent(5) { 0 } else { 1 + draw.below(most) };
        let texts = (0..count).map(|row| (row % 5 > 0).then(|| format!("{name} {row}"))).collect::<StringArray>();
        let columns = vec![
            ("n", numbers(draw, count)),
            ("k", key(draw, types[0], count, values, nulls)),
            ("l", key(draw, types[1], count, 2, nulls)),
            ("v", values_column(draw, Values::WithNulls, count)),
            ("t", Arc::new(texts) as _),
        ];
        tables.extend(add_table(ctx, draw, name, columns)?);
    }
    let equal = *draw.pick(&["=", "=", "IS NOT DISTINCT FROM"]);
    let on = match (are_unique, draw.below(3)) {
        (true, 0) => format!("(a.n {equal} b.n) AND (a.l {equal} b.l)"),
        (true, _) => format!("a.n {equal} b.n"),
        (false, 0) => format!("(a.k {equal} b.k) AND (a.l {equal} b.l)"),
        (false, _) => format!("a.k {equal} b.k"),
    };
    let join = *draw.pick(&["JOIN", "RIGHT JOIN"]);
    let columns = *draw.pick(&["*", "b.v, a.t", "a.v", "b.l, b.t, a.k", "1"]);
    Ok((tables, format!("SELECT {columns} FROM a {join} b ON {on}")))
}

/// Plans that are executed repeatedly while rows change.
#[tokio::test]
async fn unique_key_joins_equal_hash_joins() -> Result<()> {
    let mut draw = Draw::from_env();
    let mut ways = [0; 2];
    for _ in 0..2 * cases() {
        let config = SessionConfig::new().with_target_partitions(1 + draw.below(3)).with_batch_size(64);
        // The build side is read once for all partitions of the probe side, or both are partitioned.
        let ctx = SessionContext::new_with_config(config.with_repartition_joins(draw.percent(50)));
        let (tables, sql) = draw_case(&ctx, &mut draw)?;
        let plan = plan_sql(&ctx, &sql).await?;
        for _ in 0..3 {
            let expected = rows(&plan, &ctx.task_ctx()).await?;
            for way in [Contractions::On, Contractions::Fallback] {
                let lookup = contract(&plan, way)?;
                assert!(show(&lookup).contains("UniqueKeyJoinExec"), "{}", show(&lookup));
                assert_eq!(rows(&lookup, &ctx.task_ctx()).await?, expected, "{way}: {sql}\n{}", show(&lookup));
                if way == Contractions::On {
                    let executed = reset_plan_states(lookup)?;
                    collect(Arc::clone(&executed), ctx.task_ctx()).await?;
                    ways[usize::from(metric(&executed, "fallback").is_some())] += 1;
                }
            }
            for table in &tables {
                table.change(&mut draw)?;
            }
        }
    }
    println!("{} looked up, {} by the fallback plan", ways[0], ways[1]);
    assert!(ways.iter().all(|count| count * 5 > cases()), "{ways:?}");
    Ok(())
}

/// Creates numbered rows.
fn numbered(rows: Range<i64>) -> Result<RecordBatch> {
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(rows));
    Ok(RecordBatch::try_from_iter([("n", Arc::clone(&numbers)), ("v", numbers)])?)
}

/// Creates a table of numbered rows.
fn create_numbered(ctx: &SessionContext, name: &str, rows: i64) -> Result<()> {
    let batch = numbered(0..rows)?;
    ctx.register_table(name, Arc::new(MemTable::try_new(batch.schema(), vec![vec![batch]])?))?;
    Ok(())
}

/// Creates a session with two such tables in one partition.
fn two_tables(a: i64, b: i64) -> Result<SessionContext> {
    let ctx = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(1));
    create_numbered(&ctx, "a", a)?;
    create_numbered(&ctx, "b", b)?;
    Ok(ctx)
}

const BY_NUMBER: &str = "SELECT a.v AS a, b.v AS b FROM a JOIN b ON a.n = b.n";

#[tokio::test]
async fn probe_columns_are_not_copied() -> Result<()> {
    let ctx = two_tables(50, 100)?;
    let plan = contract(&plan_sql(&ctx, BY_NUMBER).await?, Contractions::On)?;
    assert_contains!(show(&plan), "UniqueKeyJoinExec: on=[n@0 of 0 = n@0 of 1]");
    assert_eq!(collect(plan, ctx.task_ctx()).await?[0].num_rows(), 50);
    let sql = "SELECT a.v AS a, b.v AS b FROM a RIGHT JOIN b ON a.n = b.n";
    let plan = contract(&plan_sql(&ctx, sql).await?, Contractions::On)?;
    assert_contains!(show(&plan), "rows of 0 or none");
    let found = collect(plan, ctx.task_ctx()).await?;
    let looked_up = &collect(plan_sql(&ctx, "SELECT v FROM b").await?, ctx.task_ctx()).await?[0];
    assert!(found[0].column(1).to_data().ptr_eq(&looked_up.column(0).to_data()));
    Ok(())
}

#[tokio::test]
async fn small_probe_batches_are_merged() -> Result<()> {
    let ctx = two_tables(50, 100)?;
    let batches: Vec<_> = (0..100).map(|row| numbered(row..row + 1)).collect::<Result<_>>()?;
    ctx.register_table("c", Arc::new(MemTable::try_new(batches[0].schema(), vec![batches])?))?;
    let sql = "SELECT a.v AS a, c.v AS c FROM a RIGHT JOIN c ON a.n = c.n";
    let plan = contract(&plan_sql(&ctx, sql).await?, Contractions::On)?;
    assert_contains!(show(&plan), "UniqueKeyJoinExec");
    let found = collect(plan, ctx.task_ctx()).await?;
    assert_eq!(found.iter().map(RecordBatch::num_rows).collect::<Vec<_>>(), [100]);
    let rows = found[0].column(1).as_primitive::<Int64Type>().values().to_vec();
    assert_eq!(rows, (0..100).collect::<Vec<_>>());
    Ok(())
}

/// Sparse keys beside a key that no row has.
#[tokio::test]
async fn rows_without_a_key_have_no_match() -> Result<()> {
    let ctx = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(1));
    let far = |values: [i64; 4]| Arc::new(Int64Array::from_iter_values(values)) as ArrayRef;
    for (name, last) in [("a", [None; 4]), ("b", [None, Some(1), None, Some(2)])] {
        let keys = [("p", far([0, 1 << 62, 5, 7])), ("q", far([0, (1 << 62) - 3, 3, 4]))];
        let last = ("r", Arc::new(last.into_iter().collect::<Int64Array>()) as ArrayRef);
        let batch = RecordBatch::try_from_iter(keys.into_iter().chain([last]))?;
        ctx.register_table(name, Arc::new(MemTable::try_new(batch.schema(), vec![vec![batch]])?))?;
    }
    for (join, count) in [("JOIN", 0), ("RIGHT JOIN", 4)] {
        let sql = format!("SELECT a.p AS a, b.p AS b FROM a {join} b ON a.p = b.p AND a.q = b.q AND a.r = b.r");
        let plan = contract(&plan_sql(&ctx, &sql).await?, Contractions::On)?;
        assert_contains!(show(&plan), "UniqueKeyJoinExec");
        assert_eq!(rows(&plan, &ctx.task_ctx()).await?.len(), count, "{join}");
    }
    Ok(())
}

#[tokio::test]
async fn a_build_side_without_memory_is_an_error() -> Result<()> {
    let runtime = RuntimeEnvBuilder::new().with_memory_pool(Arc::new(GreedyMemoryPool::new(100_000))).build_arc()?;
    let config = SessionConfig::new().with_target_partitions(1);
    let ctx = SessionContext::new_with_config_rt(config, runtime);
    create_numbered(&ctx, "a", 50_000)?;
    create_numbered(&ctx, "b", 60_000)?;
    let plan = contract(&plan_sql(&ctx, BY_NUMBER).await?, Contractions::On)?;
    assert_contains!(show(&plan), "UniqueKeyJoinExec");
    let error = collect(plan, ctx.task_ctx()).await.expect_err("no memory");
    assert_contains!(error.to_string(), "rows that are looked up");
    Ok(())
}

#[tokio::test]
async fn joins_stay_hash_joins_when_contractions_are_off() -> Result<()> {
    let ctx = two_tables(5, 5)?;
    let plan = contract(&plan_sql(&ctx, BY_NUMBER).await?, Contractions::Off)?;
    assert_contains!(show(&plan), "HashJoinExec");
    Ok(())
}
