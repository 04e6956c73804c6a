//! Running the transpose of a recursive query, from its last iteration to the first.

use arrow::array::{Array, RecordBatch};
use arrow::compute::{SortOptions, concat_batches, sort_to_indices, take_record_batch};
use arrow::datatypes::SchemaRef;
use datafusion_common::cast::as_uint64_array;
use datafusion_common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion_common::{DataFusionError, Result, internal_datafusion_err, internal_err};
use datafusion_execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion_execution::{SendableRecordBatchStream, TaskContext};
use datafusion_physical_expr::EquivalenceProperties;
use datafusion_physical_plan::execution_plan::{Boundedness, EmissionType, collect_partitioned};
use datafusion_physical_plan::metrics::{BaselineMetrics, Count, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet};
use datafusion_physical_plan::stream::RecordBatchStreamAdapter;
use datafusion_physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties};
use futures::{TryStreamExt, stream};
use std::fmt;
use std::sync::Arc;
use xql_contraction::memory_size;

use super::frame::Frame;
use super::given::{Binding, Id};
use super::shared::SharedExec;
use super::sums::Sums;
use super::tape::TapeExec;
use crate::version::without_expressions;

/// Carries the cotangents of the rows of all iterations of a recursive query back to what they were computed from.
///
/// Its inputs are the rows of the iterations, as a shared relation that [`TapeExec`] computes; the cotangents that these rows have
/// from outside, with their numbers; and what an iteration contributes, for cotangents of its rows that are given under an id. That
/// has first the number of what is contributed to, and then the number of the row of it: [`BEFORE`] are the rows of the iteration
/// before. It gives the sums of the contributions to all others. [`FIRST`] are the first rows of the recursive query.
#[derive(Debug)]
pub struct AdjointExec {
    name: String,
    incoming: (Id, SchemaRef),
    inputs: [Arc<dyn ExecutionPlan>; 3],
    metrics: ExecutionPlanMetricsSet,
    properties: Arc<PlanProperties>,
}

/// What is contributed to the rows of the iteration before.
pub const BEFORE: u64 = 0;
/// What is contributed to the first rows of the recursive query.
pub const FIRST: u64 = 1;

impl AdjointExec {
    /// The contributions, under the names of a schema. The cotangents of the rows of an iteration are given under an id, with
    /// columns of their own.
    pub fn new(
        name: impl Into<String>,
        incoming: (Id, SchemaRef),
        inputs: [Arc<dyn ExecutionPlan>; 3],
        schema: SchemaRef,
    ) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Final,
            Boundedness::Bounded,
        );
        let (metrics, properties) = (ExecutionPlanMetricsSet::new(), Arc::new(properties));
        Self { name: name.into(), incoming, inputs, metrics, properties }
    }
}

impl DisplayAs for AdjointExec {
    fn fmt_as(&self, _t: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "AdjointExec: {}", self.name)
    }
}

impl ExecutionPlan for AdjointExec {
    fn name(&self) -> &str {
        "AdjointExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.inputs.iter().collect()
    }

    without_expressions!();

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        let Ok(inputs) = children.try_into() else { return internal_err!("AdjointExec has three inputs") };
        let (metrics, properties) = (self.metrics.clone(), Arc::clone(&self.properties));
        Ok(Arc::new(Self { name: self.name.clone(), incoming: self.incoming.clone(), inputs, metrics, properties }))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let [tape, outside, step] = self.inputs.clone();
        let consumer = MemoryConsumer::new(format!("adjoint of {}", self.name));
        let sweep = Sweep {
            step,
            incoming: self.incoming.clone(),
            schema: self.schema(),
            reservation: consumer.register(context.memory_pool()),
            computed: MetricBuilder::new(&self.metrics).counter("iterations_computed_again", partition),
            context,
        };
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let rows = async move {
            let rows = sweep.run(&tape, outside).await?;
            metrics.record_output(rows.iter().map(RecordBatch::num_rows).sum());
            Ok::<_, DataFusionError>(stream::iter(rows.into_iter().map(Ok)))
        };
        let rows = stream::once(rows).try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), rows)))
    }
}

/// What it takes to go through the iterations.
struct Sweep {
    step: Arc<dyn ExecutionPlan>,
    incoming: (Id, SchemaRef),
    /// The columns of contributions.
    schema: SchemaRef,
    reservation: MemoryReservation,
    /// How many iterations have been computed again.
    computed: Count,
    context: Arc<TaskContext>,
}

impl Sweep {
    /// The sums of all contributions.
    async fn run(self, tape: &Arc<dyn ExecutionPlan>, outside: Arc<dyn ExecutionPlan>) -> Result<Vec<RecordBatch>> {
        let missing = || internal_datafusion_err!("an adjoint has no iterations");
        let computed = reader(tape)?.ok_or_else(missing)?.computed(&self.context).await?;
        let tape = computed.plan.as_ref().and_then(|plan| plan.downcast_ref::<TapeExec>()).ok_or_else(missing)?;
        let (tape, width) = (tape.tape()?, self.incoming.1.fields().len() - 1);
        let mut outside = Outside::of(collect_partitioned(outside, Arc::clone(&self.context)).await?.concat())?;
        let (mut carried, mut totals, mut past) = (Sums::new(width), vec![], tape.past(&self.context));
        for number in (0..tape.count()).rev() {
            outside.take_from(tape.before(number), &mut carried)?;
            let total = std::mem::replace(&mut carried, Sums::new(width));
            if total.is_empty() {
                continue;
            }
            let iteration = past.iteration(number).await?;
            let rows = total.batch(&self.incoming.1, None, Some(&iteration.numbers))?;
            match &iteration.frame {
                None => self.total_of(FIRST, &mut totals).add(&rows, 0, 0)?,
                Some(frame) => {
                    for batch in self.contributions(rows, frame).await? {
                        self.add(&batch, &mut carried, &mut totals)?;
                    }
                }
            }
            let held = totals.iter().chain([&carried]).map(Sums::size).sum::<usize>() + outside.size;
            self.reservation.try_resize(held)?;
        }
        self.computed.add(past.computed());
        let rows = totals.iter().zip(0_u64..);
        rows.map(|(total, to)| total.batch(&self.schema, Some(to), None)).collect()
    }

    /// The sums of what is contributed to the thing of this number.
    fn total_of<'t>(&self, to: u64, totals: &'t mut Vec<Sums>) -> &'t mut Sums {
        let to = to as usize;
        while totals.len() <= to {
            totals.push(Sums::new(self.schema.fields().len() - 2));
        }
        &mut totals[to]
    }

    /// Adds what an iteration contributes to what it was computed from.
    fn add(&self, batch: &RecordBatch, carried: &mut Sums, totals: &mut Vec<Sums>) -> Result<()> {
        let to = as_uint64_array(batch.column(0))?;
        let (mut from, count) = (0, batch.num_rows());
        // What is contributed to one thing comes in one piece, or in few.
        while from < count {
            let of = to.value(from);
            let until = (from..count).find(|row| to.value(*row) != of).unwrap_or(count);
            let sums = if of == BEFORE { &mut *carried } else { self.total_of(of, totals) };
            sums.add(&batch.slice(from, until - from), 1, 0)?;
            from = until;
        }
        Ok(())
    }

    /// What an iteration contributes for these cotangents of its rows.
    async fn contributions(&self, incoming: RecordBatch, around: &Arc<Frame>) -> Result<Vec<RecordBatch>> {
        let frame = Frame::new(self.incoming.0, vec![incoming], Some(Arc::downgrade(around)));
        let plan = frame.bound(Arc::clone(&self.step))?;
        Ok(collect_partitioned(plan, Arc::clone(&self.context)).await?.concat())
    }
}

/// The reader of the rows of all iterations, below what an optimizer has put above it.
fn reader(plan: &Arc<dyn ExecutionPlan>) -> Result<Option<SharedExec>> {
    let mut found = None;
    plan.apply(|node| {
        found = node.downcast_ref::<SharedExec>().cloned();
        Ok(if found.is_some() { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

/// The cotangents that the rows of all iterations have from outside, those of the last rows last.
struct Outside {
    rows: Option<RecordBatch>,
    /// The bytes that they take, until the last one has been taken.
    size: usize,
}

impl Outside {
    fn of(batches: Vec<RecordBatch>) -> Result<Self> {
        let Some(first) = batches.first() else { return Ok(Self { rows: None, size: 0 }) };
        let rows = concat_batches(&first.schema(), &batches)?;
        let options = SortOptions { descending: false, nulls_first: true };
        let order = sort_to_indices(rows.column(0), Some(options), None)?;
        let rows = take_record_batch(&rows, &order)?;
        Ok(Self { size: memory_size(rows.columns()), rows: Some(rows) })
    }

    /// Takes the rows from a number on, and adds them to those that are counted from there.
    fn take_from(&mut self, first: u64, sums: &mut Sums) -> Result<()> {
        let Some(rows) = &mut self.rows else { return Ok(()) };
        let numbers = as_uint64_array(rows.column(0))?;
        let known = numbers.null_count();
        let from = known + numbers.values()[known..].partition_point(|number| *number < first);
        sums.add(&rows.slice(from, rows.num_rows() - from), 0, first)?;
        *rows = rows.slice(0, from);
        Ok(())
    }
}
