//! Running a recursive query whose iterations are kept.

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt64Array};
use arrow::compute::concat;
use arrow::datatypes::{DataType, SchemaRef};
use datafusion_common::cast::as_uint64_array;
use datafusion_common::{DataFusionError, Result, internal_err};
use datafusion_execution::{SendableRecordBatchStream, TaskContext};
use datafusion_physical_expr::EquivalenceProperties;
use datafusion_physical_plan::execution_plan::{Boundedness, EmissionType, collect_partitioned};
use datafusion_physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet};
use datafusion_physical_plan::stream::RecordBatchStreamAdapter;
use datafusion_physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties};
use futures::{TryStreamExt, stream};
use std::any::Any;
use std::fmt;
use std::sync::{Arc, OnceLock, Weak};

use super::frame::{Around, Frame};
use super::given::{Binding, Id};
use crate::version::without_expressions;

/// Runs a recursive query, and keeps what each of its iterations computes.
///
/// Its inputs give the first rows, and the rows after those that are given under an id. Both have one more column, which numbers the
/// rows. It gives the rows of all iterations, in their order.
#[derive(Debug)]
pub struct TapeExec {
    name: String,
    work: Id,
    inputs: [Arc<dyn ExecutionPlan>; 2],
    around: Option<Weak<Frame>>,
    /// The iterations, once all have been computed.
    tape: Arc<OnceLock<Vec<Iteration>>>,
    metrics: ExecutionPlanMetricsSet,
    properties: Arc<PlanProperties>,
}

/// The rows of an iteration.
#[derive(Debug)]
pub struct Iteration {
    /// How many rows the iterations before have.
    pub before: u64,
    /// What its rows are called where they are computed, in their order.
    pub numbers: UInt64Array,
    /// What it was computed from, unless its rows are the first.
    pub frame: Option<Arc<Frame>>,
}

impl TapeExec {
    /// The rows of an input, and then those that the other one gives for the rows before, which are given under an id, until it
    /// gives none.
    pub fn new(name: impl Into<String>, work: Id, inputs: [Arc<dyn ExecutionPlan>; 2], schema: SchemaRef) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Final,
            Boundedness::Bounded,
        );
        Self {
            name: name.into(),
            work,
            inputs,
            around: None,
            tape: Arc::default(),
            metrics: ExecutionPlanMetricsSet::new(),
            properties: Arc::new(properties),
        }
    }

    /// The iterations of the last execution, the first rows first.
    pub fn iterations(&self) -> Result<&[Iteration]> {
        match self.tape.get() {
            Some(iterations) => Ok(iterations),
            None => internal_err!("the iterations of {} are read before they are computed", self.name),
        }
    }

    /// The same node, of which nothing has been executed.
    fn anew(&self, inputs: [Arc<dyn ExecutionPlan>; 2], around: Option<Weak<Frame>>) -> Self {
        let (properties, metrics) = (Arc::clone(&self.properties), self.metrics.clone());
        Self { name: self.name.clone(), work: self.work, inputs, around, tape: Arc::default(), metrics, properties }
    }
}

impl DisplayAs for TapeExec {
    fn fmt_as(&self, _t: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "TapeExec: {}", self.name)
    }
}

impl ExecutionPlan for TapeExec {
    fn name(&self) -> &str {
        "TapeExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.inputs.iter().collect()
    }

    without_expressions!();

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        let Ok(inputs) = children.try_into() else { return internal_err!("TapeExec has two inputs") };
        Ok(Arc::new(self.anew(inputs, self.around.clone())))
    }

    fn with_new_state(&self, state: Arc<dyn Any + Send + Sync>) -> Option<Arc<dyn ExecutionPlan>> {
        let Around(frame) = state.downcast_ref::<Around>()?;
        Some(Arc::new(self.anew(self.inputs.clone(), Some(frame.clone()))))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let [start, step] = self.inputs.clone();
        let loop_ = Loop { work: self.work, step, around: self.around.clone(), schema: self.schema() };
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let iterations = MetricBuilder::new(&self.metrics).counter("iterations", partition);
        let tape = Arc::clone(&self.tape);
        let rows = async move {
            let (rows, kept) = loop_.run(start, &context).await?;
            iterations.add(kept.len());
            metrics.record_output(rows.iter().map(RecordBatch::num_rows).sum());
            if tape.set(kept).is_err() {
                return internal_err!("a recursive query is executed twice");
            }
            Ok::<_, DataFusionError>(stream::iter(rows.into_iter().map(Ok)))
        };
        let rows = stream::once(rows).try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), rows)))
    }
}

/// What it takes to run the iterations.
struct Loop {
    work: Id,
    step: Arc<dyn ExecutionPlan>,
    around: Option<Weak<Frame>>,
    /// The columns of the query.
    schema: SchemaRef,
}

impl Loop {
    /// The rows of all iterations, and the iterations.
    async fn run(
        &self,
        start: Arc<dyn ExecutionPlan>,
        context: &Arc<TaskContext>,
    ) -> Result<(Vec<RecordBatch>, Vec<Iteration>)> {
        let (mut all, mut iterations, mut before) = (vec![], vec![], 0);
        let (mut plan, mut frame) = (start, None);
        loop {
            let (rows, numbers) = self.rows(plan, context).await?;
            if numbers.is_empty() {
                return Ok((all, iterations));
            }
            all.extend(rows.iter().cloned());
            let count = numbers.len() as u64;
            iterations.push(Iteration { before, numbers, frame });
            before += count;
            let next = Frame::new(self.work, rows, self.around.clone());
            plan = next.bound(Arc::clone(&self.step))?;
            frame = Some(next);
        }
    }

    /// The rows that a plan gives, and their numbers.
    async fn rows(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        context: &Arc<TaskContext>,
    ) -> Result<(Vec<RecordBatch>, UInt64Array)> {
        let (mut rows, mut numbers) = (vec![], vec![]);
        for batch in collect_partitioned(plan, Arc::clone(context)).await?.into_iter().flatten() {
            let mut columns = batch.columns().to_vec();
            let Some(number) = columns.pop() else { return internal_err!("rows have no numbers") };
            numbers.push(number);
            let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
            rows.push(RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?);
        }
        let numbers: Vec<_> = numbers.iter().map(AsRef::as_ref).collect();
        let numbers: ArrayRef =
            if numbers.is_empty() { arrow::array::new_empty_array(&DataType::UInt64) } else { concat(&numbers)? };
        Ok((rows, as_uint64_array(&numbers)?.clone()))
    }
}
