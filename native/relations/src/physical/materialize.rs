//! Materializes a shared relation in memory.

use arrow::array::{ArrayRef, RecordBatch, UInt64Array};
use arrow::datatypes::SchemaRef;
use datafusion_common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion_common::{DataFusionError, Result, internal_err};
use datafusion_common_runtime::JoinSet;
use datafusion_execution::memory_pool::MemoryReservation;
use datafusion_execution::{SendableRecordBatchStream, TaskContext};
use datafusion_physical_plan::metrics::{Count, ExecutionPlanMetricsSet, Gauge, MetricBuilder, MetricsSet, Time};
use datafusion_physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use futures::StreamExt;
use std::sync::Arc;
use std::time::Instant;
use xql_contraction::memory_size;

use super::batch::batch_of;
use super::projection_registry::ProjectionCache;

/// The output of the plan, and its retention.
#[derive(Debug, Clone)]
pub struct Layout {
    /// The columns of the relation.
    pub schema: SchemaRef,
    /// Whether the last of them numbers the rows that the plan computes.
    pub numbered: bool,
    /// The retention of the plan and the rows.
    pub retention: RetentionPolicy,
}

/// The retention policy: what is kept beside the rows, and whether others hold the rows already.
#[derive(Debug, Clone, Copy, Default)]
pub struct RetentionPolicy {
    /// Whether the plan is kept as long as its rows, for what it keeps beside them.
    pub plan: bool,
    /// Whether the rows are held by others as long as they are held here, so that only their numbers count as memory.
    pub rows: bool,
    /// Whether the metrics of the plan are dropped, because nobody shows them.
    pub no_measures: bool,
}

/// The batches of each partition, in memory that the session's pool accounts for.
#[derive(Debug)]
pub struct Materialized {
    /// The batches, by partition.
    pub partitions: Vec<Vec<RecordBatch>>,
    /// The metrics of the nodes of the plan, from the top.
    pub measured: Vec<Option<MetricsSet>>,
    /// The plan, if it is kept.
    pub plan: Option<Arc<dyn ExecutionPlan>>,
    /// The values that readers have computed from the rows.
    pub values: ProjectionCache,
    _reservation: MemoryReservation,
}

/// The metrics of computing the rows, over all executions of a plan.
#[derive(Debug, Clone)]
pub struct Costs {
    rows: Count,
    time: Time,
    memory: Gauge,
}

impl Costs {
    /// Costs that a set of metrics shows.
    pub fn new(metrics: &ExecutionPlanMetricsSet) -> Self {
        Self {
            rows: MetricBuilder::new(metrics).global_counter("computed_rows"),
            time: MetricBuilder::new(metrics).subset_time("computing", 0),
            memory: MetricBuilder::new(metrics).global_gauge("held_bytes"),
        }
    }
}

/// The computation of the rows, independent of the readers that wait for them.
pub struct Computation {
    /// The plan, which nobody else executes.
    pub plan: Arc<dyn ExecutionPlan>,
    /// The output of the plan.
    pub layout: Layout,
    /// The memory of the rows.
    pub reservation: MemoryReservation,
    /// The metrics.
    pub costs: Costs,
    /// The context of the execution.
    pub context: Arc<TaskContext>,
}

impl Computation {
    /// Computes the rows of all partitions in parallel.
    pub async fn run(self) -> Result<Arc<Materialized>> {
        let Self { plan, layout, reservation, costs, context } = self;
        let start = Instant::now();
        let count = plan.output_partitioning().partition_count();
        let mut running = JoinSet::new();
        for partition in 0..count {
            let stream = plan.execute(partition, Arc::clone(&context))?;
            let (layout, reservation) = (layout.clone(), reservation.new_empty());
            // Each partition numbers its own rows: of three, the first has 0, 3, 6 and so on.
            let numbers = (partition as u64..).step_by(count);
            running.spawn(async move {
                let (batches, held) = collect(stream, layout, numbers, reservation).await?;
                Ok::<_, DataFusionError>((partition, batches, held))
            });
        }
        let mut partitions = vec![vec![]; count];
        while let Some(collected) = running.join_next().await {
            let (partition, batches, held) = match collected {
                Ok(collected) => collected?,
                Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                Err(_) => return internal_err!("computing a shared relation was cancelled"),
            };
            reservation.grow(held.size());
            drop(held);
            partitions[partition] = batches;
        }
        costs.rows.add(partitions.iter().flatten().map(RecordBatch::num_rows).sum());
        costs.time.add_elapsed(start);
        costs.memory.set_max(reservation.size());
        let measured = if layout.retention.no_measures { vec![] } else { measured(&plan)? };
        let plan = layout.retention.plan.then_some(plan);
        let values = ProjectionCache::new(&reservation, costs.memory.clone());
        Ok(Arc::new(Materialized { partitions, measured, plan, values, _reservation: reservation }))
    }
}

async fn collect(
    mut stream: SendableRecordBatchStream,
    Layout { schema, numbered, retention }: Layout,
    mut numbers: impl Iterator<Item = u64>,
    reservation: MemoryReservation,
) -> Result<(Vec<RecordBatch>, MemoryReservation)> {
    let mut batches = vec![];
    while let Some(batch) = stream.next().await.transpose()? {
        let rows = batch.num_rows();
        if rows > 0 {
            let mut columns = batch.columns().to_vec();
            let mut held = if retention.rows { 0 } else { memory_size(&columns) };
            if numbered {
                let numbers: ArrayRef = Arc::new(numbers.by_ref().take(rows).collect::<UInt64Array>());
                held += memory_size(std::slice::from_ref(&numbers));
                columns.push(numbers);
            }
            let batch = batch_of(&schema, columns, rows)?;
            reservation.try_grow(held)?;
            batches.push(batch);
        }
    }
    Ok((batches, reservation))
}

/// Collects the metrics of the nodes of a plan, from the top.
fn measured(plan: &Arc<dyn ExecutionPlan>) -> Result<Vec<Option<MetricsSet>>> {
    let mut found = vec![];
    plan.apply(|node| {
        found.push(node.metrics());
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(found)
}
