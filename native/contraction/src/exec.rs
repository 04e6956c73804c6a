//! The operator.

use arrow::array::RecordBatch;
use datafusion_common::{DataFusionError, Result, Statistics, internal_err};
use datafusion_execution::memory_pool::MemoryConsumer;
use datafusion_execution::{SendableRecordBatchStream, TaskContext};
use datafusion_physical_plan::metrics::{
    BaselineMetrics, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet, RecordOutput,
};
use datafusion_physical_plan::stream::RecordBatchStreamAdapter;
use datafusion_physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties};
use futures::{TryStreamExt, stream};
use std::fmt;
use std::sync::Arc;

use crate::handover::{Streams, handed_over, properties};
use crate::kept::Kept;
use crate::kernel::Kernel;
use crate::option::Contractions;
use crate::read::Inputs;
use crate::spec::Contraction;
use crate::sums::{Computed, Setting, Taken};
use crate::version::without_expressions;

/// A grouped sum of products over a join of its inputs.
///
/// It reads all of them, and computes the sums by whichever kernel takes least for the rows that there are. If there is no memory for that,
/// or a key is of a kind that it does not know, it hands the rows over to the join and the groups that DataFusion has planned. `EXPLAIN`
/// shows what the sum is over, the inputs by their numbers; `EXPLAIN ANALYZE` the kernel, the pairs of rows, and how many of all pairs that
/// dense arrays would have these are (`filling`, in percent).
#[derive(Debug)]
pub struct ContractionExec {
    work: Arc<Work>,
    metrics: ExecutionPlanMetricsSet,
    properties: Arc<PlanProperties>,
}

/// What there is to do.
#[derive(Debug, Clone)]
struct Work {
    inputs: Vec<Arc<dyn ExecutionPlan>>,
    spec: Arc<Contraction>,
    /// The plan that rows are handed over to.
    handover: Arc<dyn ExecutionPlan>,
    how: Contractions,
    /// What is known of the rows of the result.
    statistics: Arc<Statistics>,
    /// What an execution leaves to the next one, in a loop or of a plan that is executed again.
    kept: Arc<Kept>,
}

impl ContractionExec {
    /// A sum over inputs, or else by the rows of a plan that they are handed over to, of whose rows these statistics are known.
    pub fn new(
        inputs: Vec<Arc<dyn ExecutionPlan>>,
        spec: Arc<Contraction>,
        handover: Arc<dyn ExecutionPlan>,
        how: Contractions,
        statistics: Arc<Statistics>,
    ) -> Self {
        Self::of(Work { inputs, spec, handover, how, statistics, kept: Arc::default() })
    }

    fn of(work: Work) -> Self {
        let properties = properties(&work.handover);
        Self { work: Arc::new(work), metrics: ExecutionPlanMetricsSet::new(), properties }
    }
}

impl DisplayAs for ContractionExec {
    fn fmt_as(&self, _t: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "ContractionExec: {}", self.work.spec)
    }
}

impl ExecutionPlan for ContractionExec {
    fn name(&self) -> &str {
        "ContractionExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.work.inputs.iter().collect()
    }

    without_expressions!();

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false; self.work.inputs.len()]
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        if children.len() != self.work.inputs.len() {
            return internal_err!("ContractionExec has {} inputs", self.work.inputs.len());
        }
        Ok(Arc::new(Self::of(Work { inputs: children, ..self.work.as_ref().clone() })))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn partition_statistics(&self, _partition: Option<usize>) -> Result<Arc<Statistics>> {
        Ok(Arc::new(self.work.statistics.as_ref().clone().to_inexact()))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        if partition > 0 {
            return internal_err!("ContractionExec has no partition {partition}");
        }
        let running = Running {
            work: Arc::clone(&self.work),
            context,
            metrics: self.metrics.clone(),
            measured: BaselineMetrics::new(&self.metrics, partition),
        };
        let rows = stream::once(running.rows()).try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), rows)))
    }
}

/// One execution.
struct Running {
    work: Arc<Work>,
    context: Arc<TaskContext>,
    metrics: ExecutionPlanMetricsSet,
    measured: BaselineMetrics,
}

impl Running {
    /// The rows of the sum.
    async fn rows(self) -> Result<SendableRecordBatchStream> {
        let work = Arc::clone(&self.work);
        let Work { inputs, spec, how, handover, kept, .. } = work.as_ref();
        if *how == Contractions::HandedOver {
            let streams = inputs.iter().map(|input| {
                (0..input.output_partitioning().partition_count())
                    .map(|partition| input.execute(partition, Arc::clone(&self.context)))
                    .collect::<Result<_>>()
            });
            let streams = streams.collect::<Result<_>>()?;
            return self.handed_over(streams);
        }
        let reservation = MemoryConsumer::new("sum of products").register(self.context.memory_pool());
        let read = Inputs::read(inputs, &self.context, &reservation).await?;
        if !read.are_complete() {
            drop(reservation);
            return self.handed_over(read.streams(inputs));
        }
        let schema = handover.schema();
        let timer = self.measured.elapsed_compute().timer();
        let setting = Setting { spec, how: *how, reservation: &reservation, kept, schema: Arc::clone(&schema) };
        // What fails for a row of an input need not fail for one of the join.
        let computed = setting.computed(&read.batches()).ok().flatten();
        timer.done();
        let Some((computed, taken)) = computed else {
            drop(reservation);
            return self.handed_over(read.streams(inputs));
        };
        drop(read);
        taken.into_iter().for_each(|taken| self.note(taken));
        let measured = self.measured;
        let next = stream::try_unfold((computed, reservation), move |(mut computed, reservation)| {
            let timer = measured.elapsed_compute().timer();
            let batch = computed.next();
            timer.done();
            let batch = batch.map(|batch| batch.map(|batch| batch.record_output(&measured)));
            async move { Ok::<_, DataFusionError>(batch?.map(|batch| (batch, (computed, reservation)))) }
        });
        // Batches are not cut to the session's size: each part would count as the whole where memory is accounted for.
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, next)))
    }

    /// The rows that the plan behind the sum has.
    fn handed_over(self, streams: Vec<Streams>) -> Result<SendableRecordBatchStream> {
        handed_over(&self.work.handover, streams, self.context, &self.metrics, self.measured)
    }

    /// Notes how the sum is computed.
    fn note(&self, taken: Taken) {
        let metric = || MetricBuilder::new(&self.metrics);
        let kernel = match taken.kernel {
            Kernel::Dense => "dense",
            Kernel::Sparse => "sparse",
        };
        metric().global_counter(kernel).add(1);
        metric().global_counter("pairs").add(taken.work.pairs as usize);
        metric().global_gauge("filling").set_max((100.0 * taken.work.filling).round() as usize);
    }
}

impl Computed {
    /// The next rows, none after the last.
    fn next(&mut self) -> Result<Option<RecordBatch>> {
        match self {
            Self::Pairs(pairs) => pairs.next(),
            Self::Rows(batches) => Ok(batches.pop()),
        }
    }
}
