//! Sessions, and statements executed with and without contraction.

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::common::Result;
use datafusion::common::cast::as_float64_array;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::{ExecutionPlan, collect, displayable};
use datafusion::prelude::{SessionConfig, SessionContext};
use std::collections::BTreeMap;
use std::sync::Arc;
use xql_contraction::{Contractions, contract_sums};

/// All modes.
pub const WAYS: [Contractions; 4] =
    [Contractions::On, Contractions::Dense, Contractions::Sparse, Contractions::Fallback];

/// Creates a session.
pub fn session(partitions: usize) -> SessionContext {
    SessionContext::new_with_config(SessionConfig::new().with_target_partitions(partitions).with_batch_size(64))
}

/// Plans a statement.
pub async fn plan_sql(ctx: &SessionContext, sql: &str) -> Result<Arc<dyn ExecutionPlan>> {
    ctx.sql(sql).await?.create_physical_plan().await
}

/// Shows a plan.
pub fn show(plan: &Arc<dyn ExecutionPlan>) -> String {
    displayable(plan.as_ref()).indent(true).to_string()
}

/// Counts the contracted sums of a plan.
pub fn count(plan: &Arc<dyn ExecutionPlan>) -> usize {
    show(plan)
        .lines()
        .filter(|line| line.contains("ContractionExec") || line.contains("IntegerKeyAggregateExec"))
        .count()
}

/// Returns a metric of the contracted sums of an executed plan.
pub fn metric(plan: &Arc<dyn ExecutionPlan>, name: &str) -> Option<usize> {
    let own = plan.metrics().and_then(|metrics| metrics.sum_by_name(name)).map(|value| value.as_usize());
    own.or_else(|| plan.children().into_iter().find_map(|child| metric(child, name)))
}

/// Returns the first aggregate of a plan by its keys as text.
pub async fn sums(plan: Arc<dyn ExecutionPlan>, context: Arc<TaskContext>) -> Result<BTreeMap<String, Option<f64>>> {
    let totals = totals(plan, context).await?;
    Ok(totals.into_iter().map(|(key, totals)| (key, totals[0])).collect())
}

/// Returns the aggregates of a plan by their keys as text. The columns of aggregates come last; those whose names begin with `total` are
/// several.
pub async fn totals(
    plan: Arc<dyn ExecutionPlan>,
    context: Arc<TaskContext>,
) -> Result<BTreeMap<String, Vec<Option<f64>>>> {
    let mut found = BTreeMap::new();
    for batch in collect(plan, context).await? {
        for (key, sum) in rows(&batch)? {
            assert!(found.insert(key.clone(), sum).is_none(), "{key} comes twice");
        }
    }
    Ok(found)
}

fn rows(batch: &RecordBatch) -> Result<Vec<(String, Vec<Option<f64>>)>> {
    let several = batch.schema().fields().iter().filter(|field| field.name().starts_with("total")).count();
    let (keys, totals) = batch.columns().split_at(batch.num_columns() - several.max(1));
    let keys = texts(keys, batch.num_rows())?;
    let totals =
        totals.iter().map(|total| cast(total, &DataType::Float64)).collect::<std::result::Result<Vec<_>, _>>()?;
    let totals = totals.iter().map(|total| as_float64_array(total)).collect::<Result<Vec<_>>>()?;
    let totals = (0..batch.num_rows()).map(|row| {
        let of_row = totals.iter().map(|total| total.is_valid(row).then(|| total.value(row)));
        of_row.collect()
    });
    Ok(keys.into_iter().zip(totals).collect())
}

/// Shows the values of columns by row.
pub fn texts(columns: &[ArrayRef], rows: usize) -> Result<Vec<String>> {
    let options = FormatOptions::default().with_null("NULL");
    let shown = columns.iter().map(|column| ArrayFormatter::try_new(column.as_ref(), &options));
    let shown: Vec<_> = shown.collect::<std::result::Result<_, _>>()?;
    let text = |row: usize| shown.iter().map(|column| column.value(row).to_string()).collect::<Vec<_>>().join("|");
    Ok((0..rows).map(text).collect())
}

/// Contracts a plan.
pub fn contract(plan: &Arc<dyn ExecutionPlan>, way: Contractions) -> Result<Arc<dyn ExecutionPlan>> {
    contract_sums(Arc::clone(plan), way)
}
