//! Executes a recursive query whose iterations are kept on a tape.

use arrow::array::{ArrayRef, RecordBatch, UInt64Array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion_common::{DataFusionError, Result, internal_err};
use datafusion_execution::memory_pool::MemoryConsumer;
use datafusion_execution::{SendableRecordBatchStream, TaskContext};
use datafusion_physical_expr::EquivalenceProperties;
use datafusion_physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion_physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet, Time};
use datafusion_physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties};
use futures::stream;
use std::any::Any;
use std::fmt;
use std::sync::{Arc, OnceLock, Weak};
use xql_contraction::flatten_stream;

use super::batch::batch_of;
use super::batch_scan::Id;
use super::iteration_context::{IterationFrame, OuterContext};
use super::iterations::{State, Steps};
use super::observed::Observed;
use super::row_filter::ReaderFilters;
use super::tape::{Keeps, Tape};
use crate::version::without_expressions;

/// Runs a recursive query, and keeps what each of its iterations computes, or the rows of some of them.
///
/// Its inputs give the first rows, and the rows after those that are given under an id. Both have one more column, which numbers the
/// rows. It gives the rows of all iterations, in their order, with a column that numbers all of them. If it does not keep all iterations,
/// it gives those that somebody reads.
#[derive(Debug)]
pub struct RecursiveTapeExec {
    query: Query,
    inputs: [Arc<dyn ExecutionPlan>; 2],
    around: Option<Weak<IterationFrame>>,
    /// The iterations, once all have been computed.
    tape: Arc<OnceLock<Tape>>,
    metrics: ExecutionPlanMetricsSet,
    properties: Arc<PlanProperties>,
}

/// The recursive query of a tape.
#[derive(Debug, Clone)]
pub struct Query {
    /// The name of the recursive query.
    pub name: String,
    /// The identifier of the rows before.
    pub work: Id,
    /// The columns of the query.
    pub schema: SchemaRef,
    /// The iterations that are kept.
    pub keeps: Keeps,
    /// The rows that somebody reads.
    pub wanted: Arc<ReaderFilters>,
    /// The observer of the iterations.
    pub observed: Option<Observed>,
}

impl RecursiveTapeExec {
    /// Creates the node. The first input computes the first rows. The second computes the next rows from those before,
    /// until there are none.
    pub fn new(query: Query, inputs: [Arc<dyn ExecutionPlan>; 2]) -> Self {
        let number = Arc::new(Field::new("∂row", DataType::UInt64, false));
        let fields = query.schema.fields().iter().cloned().chain([number]);
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::new(Schema::new(fields.collect::<Vec<_>>()))),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Final,
            Boundedness::Bounded,
        );
        let (tape, metrics, properties) = (Arc::default(), ExecutionPlanMetricsSet::new(), Arc::new(properties));
        Self { query, inputs, around: None, tape, metrics, properties }
    }

    /// Returns the recursive query.
    pub fn query(&self) -> &Query {
        &self.query
    }

    /// Returns the iterations of the last execution, the first rows first.
    pub fn tape(&self) -> Result<&Tape> {
        match self.tape.get() {
            Some(tape) => Ok(tape),
            None => internal_err!("the iterations of {} are read before they are computed", self.query.name),
        }
    }

    /// Returns the node in its initial state.
    fn anew(&self, inputs: [Arc<dyn ExecutionPlan>; 2], around: Option<Weak<IterationFrame>>) -> Self {
        let (properties, metrics) = (Arc::clone(&self.properties), self.metrics.clone());
        Self { query: self.query.clone(), inputs, around, tape: Arc::default(), metrics, properties }
    }
}

impl DisplayAs for RecursiveTapeExec {
    fn fmt_as(&self, _t: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "RecursiveTapeExec: {}", self.query.name)?;
        match self.query.keeps {
            Keeps::All => Ok(()),
            Keeps::Checkpoints(most) => write!(f, ", checkpoints={most}"),
            Keeps::Ends => write!(f, ", fixed point"),
        }
    }
}

impl ExecutionPlan for RecursiveTapeExec {
    fn name(&self) -> &str {
        "RecursiveTapeExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.inputs.iter().collect()
    }

    without_expressions!();

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        let Ok(inputs) = children.try_into() else { return internal_err!("RecursiveTapeExec has two inputs") };
        Ok(Arc::new(self.anew(inputs, self.around.clone())))
    }

    fn with_new_state(&self, state: Arc<dyn Any + Send + Sync>) -> Option<Arc<dyn ExecutionPlan>> {
        let OuterContext(frame) = state.downcast_ref::<OuterContext>()?;
        Some(Arc::new(self.anew(self.inputs.clone(), Some(frame.clone()))))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let [start, step] = self.inputs.clone();
        let Query { name, work, schema, keeps, .. } = self.query.clone();
        let steps = Steps { work, step, around: self.around.clone(), schema };
        let reservation = MemoryConsumer::new(format!("iterations of {name}")).register(context.memory_pool());
        let mut run = Run {
            query: self.query.clone(),
            schema: self.schema(),
            tape: Tape::new(&name, steps, keeps, reservation),
            read: vec![],
            before: 0,
        };
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let iterations = MetricBuilder::new(&self.metrics).counter("iterations", partition);
        let held = MetricBuilder::new(&self.metrics).gauge("held_bytes", partition);
        let known = Arc::clone(&self.tape);
        let rows = async move {
            run.through(start, &context, metrics.elapsed_compute()).await?;
            iterations.add(run.tape.count());
            held.set(run.tape.size());
            metrics.record_output(run.read.iter().map(RecordBatch::num_rows).sum());
            if known.set(run.tape).is_err() {
                return internal_err!("a recursive query is executed twice");
            }
            Ok::<_, DataFusionError>(stream::iter(run.read.into_iter().map(Ok)))
        };
        Ok(flatten_stream(self.schema(), rows))
    }
}

/// The iterations so far.
struct Run {
    query: Query,
    /// The columns of the query, and the number of the row.
    schema: SchemaRef,
    tape: Tape,
    /// The rows that somebody reads.
    read: Vec<RecordBatch>,
    /// How many rows there have been.
    before: u64,
}

impl Run {
    /// Runs iterations until one has no rows. `elapsed` gets the time that they take, since their plans measure nothing.
    async fn through(
        &mut self,
        start: Arc<dyn ExecutionPlan>,
        context: &Arc<TaskContext>,
        elapsed: &Time,
    ) -> Result<()> {
        let mut rows = self.tape.steps().rows(start, context).await?;
        let _timer = elapsed.timer();
        let mut frame = None;
        while rows.count() > 0 {
            if let Some(observed) = &self.query.observed {
                observed.step(&self.query.name, self.tape.count(), &rows.batches)?;
            }
            self.tape.add(&rows, frame, self.before)?;
            self.keep(&rows)?;
            let (next_frame, next) = self.tape.steps().after(&rows, context).await?;
            (rows, frame) = (next, Some(next_frame));
        }
        Ok(())
    }

    /// Keeps the rows of an iteration that somebody reads.
    fn keep(&mut self, rows: &State) -> Result<()> {
        let first = self.read.len();
        for batch in rows.batches.iter() {
            let count = batch.num_rows();
            let numbers: ArrayRef = Arc::new(UInt64Array::from_iter_values(self.before..self.before + count as u64));
            self.before += count as u64;
            let columns = batch.columns().iter().cloned().chain([numbers]).collect();
            let mut batch = batch_of(&self.schema, columns, count)?;
            if self.tape.is_thinned() {
                batch = self.query.wanted.filter(batch)?;
            }
            if batch.num_rows() > 0 {
                self.read.push(batch);
            }
        }
        self.tape.hold(&self.read[first..])
    }
}
