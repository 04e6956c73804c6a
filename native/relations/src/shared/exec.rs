//! Reading a relation that is computed once.

use arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, UInt64Array};
use arrow::datatypes::SchemaRef;
use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_common::{ColumnStatistics, DataFusionError, Result, Statistics, internal_err};
use datafusion_common_runtime::JoinSet;
use datafusion_execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion_execution::{SendableRecordBatchStream, TaskContext};
use datafusion_physical_expr::EquivalenceProperties;
use datafusion_physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion_physical_plan::stream::RecordBatchStreamAdapter;
use datafusion_physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, Partitioning, PlanProperties, displayable,
};
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, TryFutureExt, TryStreamExt};
use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// What the readers of a relation have in common.
#[derive(Debug)]
pub struct Shared {
    name: String,
    schema: SchemaRef,
    /// Whether the last column numbers the rows that the plan computes.
    numbered: bool,
    partitions: usize,
    plan: Mutex<Arc<dyn ExecutionPlan>>,
    rows: Mutex<Rows>,
    /// Statistics of the rows, of all and of partitions. Optimizer rules ask for those of each reader again and again, and to
    /// compute them asks all relations below.
    statistics: Mutex<HashMap<Option<usize>, Arc<Statistics>>>,
}

/// The rows of one execution, or of one iteration of a recursive query.
#[derive(Debug, Default)]
struct Rows {
    /// The execution that they are of. Another one computes rows of its own.
    context: Weak<TaskContext>,
    computing: Option<Computing>,
}

/// The computation of the rows. Whichever reader asks for them drives it, and one that is dropped leaves it to the others.
type Computing = futures::future::Shared<BoxFuture<'static, Result<Arc<Computed>, Arc<DataFusionError>>>>;

/// The batches of each partition, in memory that the session's pool accounts for.
#[derive(Debug)]
struct Computed {
    partitions: Vec<Vec<RecordBatch>>,
    _reservation: MemoryReservation,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub fn new(name: String, schema: SchemaRef, numbered: bool, plan: Arc<dyn ExecutionPlan>) -> Self {
        let partitions = plan.output_partitioning().partition_count();
        Self {
            name,
            schema,
            numbered,
            partitions,
            plan: Mutex::new(plan),
            rows: Mutex::default(),
            statistics: Mutex::default(),
        }
    }

    pub fn plan(&self) -> Arc<dyn ExecutionPlan> {
        Arc::clone(&locked(&self.plan))
    }

    fn statistics(&self, partition: Option<usize>) -> Result<Arc<Statistics>> {
        if let Some(known) = locked(&self.statistics).get(&partition) {
            return Ok(Arc::clone(known));
        }
        let mut statistics = self.plan().partition_statistics(partition)?.as_ref().clone();
        if self.numbered {
            statistics.column_statistics.push(ColumnStatistics::new_unknown());
        }
        let statistics = Arc::new(statistics);
        locked(&self.statistics).insert(partition, Arc::clone(&statistics));
        Ok(statistics)
    }

    fn set_plan(&self, plan: Arc<dyn ExecutionPlan>) {
        *locked(&self.plan) = plan;
    }

    /// Hands the working table of a recursive query on to the plan, whose scan of it is hidden from the plan around.
    fn assign(&self, state: &Arc<dyn Any + Send + Sync>) -> Result<()> {
        let assigned = self.plan().transform_down(|plan| {
            let assigned = plan.with_new_state(Arc::clone(state));
            Ok(assigned.map_or_else(|| Transformed::no(plan), Transformed::yes))
        })?;
        if assigned.transformed {
            self.set_plan(assigned.data);
        }
        Ok(())
    }

    /// Forgets the rows, for the next iteration of a recursive query, and those of the relations that they were computed from.
    fn forget(&self) {
        let rows = std::mem::take(&mut *locked(&self.rows));
        // What has not been asked for has asked for nothing either.
        if rows.context.strong_count() == 0 {
            return;
        }
        let visited = self.plan().apply(|node| {
            if let Some(reader) = node.downcast_ref::<SharedExec>() {
                reader.shared.forget();
            }
            Ok(TreeNodeRecursion::Continue)
        });
        debug_assert!(visited.is_ok(), "the closure never fails");
    }

    fn rows_of(&self, context: &Arc<TaskContext>) -> Result<Computing> {
        let mut rows = locked(&self.rows);
        let is_same = std::ptr::eq(rows.context.as_ptr(), Arc::as_ptr(context));
        if let Some(computing) = rows.computing.as_ref().filter(|_| is_same) {
            return Ok(computing.clone());
        }
        // Joins and the like keep what they have computed, and this may be another execution or iteration. Other shared
        // relations keep it for the whole of one.
        let plan = self.plan().transform_up(|node| match node.is::<SharedExec>() {
            true => Ok(Transformed::no(node)),
            false => node.reset_state().map(Transformed::yes),
        })?;
        let consumer = MemoryConsumer::new(format!("shared relation {}", self.name));
        let computation = Computation {
            plan: plan.data,
            schema: Arc::clone(&self.schema),
            numbered: self.numbered,
            partitions: self.partitions,
            reservation: consumer.register(context.memory_pool()),
            context: Arc::clone(context),
        };
        let computing = computation.run().map_err(Arc::new).boxed().shared();
        *rows = Rows { context: Arc::downgrade(context), computing: Some(computing.clone()) };
        Ok(computing)
    }
}

/// What it takes to compute the rows, without the readers that wait for them.
struct Computation {
    plan: Arc<dyn ExecutionPlan>,
    schema: SchemaRef,
    numbered: bool,
    partitions: usize,
    reservation: MemoryReservation,
    context: Arc<TaskContext>,
}

impl Computation {
    async fn run(self) -> Result<Arc<Computed>> {
        let Self { plan, schema, numbered, partitions: count, reservation, context } = self;
        let mut running = JoinSet::new();
        for partition in 0..count {
            let stream = plan.execute(partition, Arc::clone(&context))?;
            let (schema, reservation) = (Arc::clone(&schema), reservation.new_empty());
            // Each partition numbers its own rows: of three, the first has 0, 3, 6 and so on.
            let numbers = numbered.then(|| (partition as u64..).step_by(count));
            running.spawn(async move {
                let (batches, held) = collect(stream, schema, numbers, reservation).await?;
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
        Ok(Arc::new(Computed { partitions, _reservation: reservation }))
    }
}

async fn collect(
    mut stream: SendableRecordBatchStream,
    schema: SchemaRef,
    mut numbers: Option<impl Iterator<Item = u64>>,
    reservation: MemoryReservation,
) -> Result<(Vec<RecordBatch>, MemoryReservation)> {
    let mut batches = vec![];
    while let Some(batch) = stream.next().await.transpose()? {
        if batch.num_rows() > 0 {
            let rows = batch.num_rows();
            let mut columns = batch.columns().to_vec();
            columns.extend(
                numbers.as_mut().map(|numbers| -> ArrayRef { Arc::new(numbers.take(rows).collect::<UInt64Array>()) }),
            );
            let options = RecordBatchOptions::new().with_row_count(Some(rows));
            let batch = RecordBatch::try_new_with_options(Arc::clone(&schema), columns, &options)?;
            reservation.try_grow(held_by(&batch))?;
            batches.push(batch);
        }
    }
    Ok((batches, reservation))
}

/// The memory of the rows of a batch. Several batches may be slices of the same buffers, which then count once.
fn held_by(batch: &RecordBatch) -> usize {
    let columns = batch.columns().iter();
    columns
        .map(|column| column.to_data().get_slice_memory_size().unwrap_or_else(|_| column.get_array_memory_size()))
        .sum()
}

/// A reader of a shared relation.
#[derive(Debug, Clone)]
pub struct SharedExec {
    shared: Arc<Shared>,
    projection: Vec<usize>,
    /// Whether it shows the plan of the relation.
    ///
    /// The plan is no child of any reader: it is planned and optimised already, and an optimizer that takes it for the input of one
    /// reader could change it for all.
    shows_plan: bool,
    properties: Arc<PlanProperties>,
}

impl SharedExec {
    /// A reader under the names of a schema, of these columns if not of all.
    pub(super) fn new(
        shared: Arc<Shared>,
        schema: &SchemaRef,
        projection: Option<Vec<usize>>,
        shows_plan: bool,
    ) -> Result<Self> {
        let projection = projection.unwrap_or_else(|| (0..schema.fields().len()).collect());
        let schema = Arc::new(schema.project(&projection)?);
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(shared.partitions),
            EmissionType::Final,
            Boundedness::Bounded,
        );
        Ok(Self { shared, projection, shows_plan, properties: Arc::new(properties) })
    }
}

impl DisplayAs for SharedExec {
    fn fmt_as(&self, _t: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        let names = self.shared.schema.fields();
        let columns: Vec<_> = self.projection.iter().map(|column| names[*column].name().as_str()).collect();
        let verb = if self.shows_plan { "computes" } else { "reads" };
        write!(f, "SharedExec: {verb} {}, columns=[{}]", self.shared.name, columns.join(", "))?;
        if self.shows_plan {
            let plan = self.shared.plan();
            for line in displayable(plan.as_ref()).indent(false).to_string().lines() {
                write!(f, "\n{}| {line}", self.shared.name)?;
            }
        }
        Ok(())
    }
}

impl ExecutionPlan for SharedExec {
    fn name(&self) -> &str {
        "SharedExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![]
    }

    fn with_new_children(self: Arc<Self>, _children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        self.shared.forget();
        Ok(self)
    }

    fn with_new_state(&self, state: Arc<dyn Any + Send + Sync>) -> Option<Arc<dyn ExecutionPlan>> {
        // A recursive query refuses two readers of its working table, and takes every answer for one.
        self.shared.assign(&state).ok();
        None
    }

    fn partition_statistics(&self, partition: Option<usize>) -> Result<Arc<Statistics>> {
        let statistics = self.shared.statistics(partition)?;
        Ok(Arc::new(statistics.as_ref().clone().project(Some(&self.projection))))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        if partition >= self.shared.partitions {
            return internal_err!("{} has no partition {partition}", self.shared.name);
        }
        let computing = self.shared.rows_of(&context)?;
        let (projection, schema) = (self.projection.clone(), self.schema());
        let batches = async move {
            let computed = computing.await.map_err(DataFusionError::Shared)?;
            let count = computed.partitions[partition].len();
            let batches = (0..count).map(move |index| {
                let batch = &computed.partitions[partition][index];
                let columns = projection.iter().map(|column| Arc::clone(batch.column(*column))).collect();
                let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
                Ok(RecordBatch::try_new_with_options(Arc::clone(&schema), columns, &options)?)
            });
            Ok::<_, DataFusionError>(futures::stream::iter(batches))
        };
        let stream = futures::stream::once(batches).try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), stream)))
    }
}
