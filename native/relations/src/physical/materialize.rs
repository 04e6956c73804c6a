//! Computing the rows of a shared relation, and keeping them in memory.

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

/// What the plan computes.
#[derive(Debug, Clone)]
pub struct Layout {
    /// The columns of the relation.
    pub schema: SchemaRef,
    /// Whether the last of them numbers the rows that the plan computes.
    pub numbered: bool,
    /// Who else holds what.
    pub kept: Kept,
}

/// What is kept beside the rows, and what of the rows is kept by others already.
#[derive(Debug, Clone, Copy, Default)]
pub struct Kept {
    /// Whether the plan is kept as long as its rows, for what it keeps beside them.
    pub plan: bool,
    /// Whether the rows are held by others as long as they are held here, so that only their numbers count as memory.
    pub rows: bool,
    /// Whether nobody shows what the nodes of the plan have measured.
    pub no_measures: bool,
}

/// The batches of each partition, in memory that the session's pool accounts for.
#[derive(Debug)]
pub struct Computed {
    /// The batches, by partition.
    pub partitions: Vec<Vec<RecordBatch>>,
    /// What the nodes of the plan have measured, from above.
    pub measured: Vec<Option<MetricsSet>>,
    /// The plan, if it is kept.
    pub plan: Option<Arc<dyn ExecutionPlan>>,
    /// What readers have computed from the rows.
    pub values: ProjectionCache,
    _reservation: MemoryReservation,
}

/// What it took to compute the rows, in all executions of a plan.
#[derive(Debug, Clone)]
pub struct Costs {
    rows: Count,
    time: Time,
    memory: Gauge,
}

impl Costs {
    /// Costs that a set of metrics shows.
    pub fn of(metrics: &ExecutionPlanMetricsSet) -> Self {
        Self {
            rows: MetricBuilder::new(metrics).global_counter("computed_rows"),
            time: MetricBuilder::new(metrics).subset_time("computing", 0),
            memory: MetricBuilder::new(metrics).global_gauge("held_bytes"),
        }
    }
}

/// What it takes to compute the rows, without the readers that wait for them.
pub struct Computation {
    /// The plan, which nobody else executes.
    pub plan: Arc<dyn ExecutionPlan>,
    /// What it computes.
    pub layout: Layout,
    /// What accounts for the rows.
    pub reservation: MemoryReservation,
    /// Where the time is noted.
    pub costs: Costs,
    /// The execution that the rows are of.
    pub context: Arc<TaskContext>,
}

impl Computation {
    /// Computes the rows of all partitions side by side.
    pub async fn run(self) -> Result<Arc<Computed>> {
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
        let measured = if layout.kept.no_measures { vec![] } else { measured(&plan)? };
        let plan = layout.kept.plan.then_some(plan);
        let values = ProjectionCache::new(&reservation, costs.memory.clone());
        Ok(Arc::new(Computed { partitions, measured, plan, values, _reservation: reservation }))
    }
}

async fn collect(
    mut stream: SendableRecordBatchStream,
    Layout { schema, numbered, kept }: Layout,
    mut numbers: impl Iterator<Item = u64>,
    reservation: MemoryReservation,
) -> Result<(Vec<RecordBatch>, MemoryReservation)> {
    let mut batches = vec![];
    while let Some(batch) = stream.next().await.transpose()? {
        let rows = batch.num_rows();
        if rows > 0 {
            let mut columns = batch.columns().to_vec();
            let mut held = if kept.rows { 0 } else { memory_size(&columns) };
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

/// Returns what the nodes of a plan have measured, from above.
fn measured(plan: &Arc<dyn ExecutionPlan>) -> Result<Vec<Option<MetricsSet>>> {
    let mut found = vec![];
    plan.apply(|node| {
        found.push(node.metrics());
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(found)
}
