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

use crate::compute::{KernelUse, SumBatches, SumContext};
use crate::cost::Kernel;
use crate::encoding_cache::EncodingCache;
use crate::fallback::{Streams, execute_fallback, fallback_properties};
use crate::input_buffer::BufferedInputs;
use crate::option::Contractions;
use crate::spec::ContractionSpec;
use crate::version::without_expressions;

/// A grouped sum of products over a join of its inputs.
///
/// It reads all of them, and computes the sums by whichever kernel takes least for the rows that there are. If there is no memory for that,
/// or a key is of a kind that it does not know, it hands the rows over to the join and the groups that DataFusion has planned. `EXPLAIN`
/// shows what the sum is over, the inputs by their numbers; `EXPLAIN ANALYZE` the kernel, the pairs of rows, and how many of all pairs that
/// dense arrays would have these are (`filling`, in percent).
#[derive(Debug)]
pub struct ContractionExec {
    params: Arc<ContractionParams>,
    metrics: ExecutionPlanMetricsSet,
    properties: Arc<PlanProperties>,
}

/// What there is to do.
#[derive(Debug, Clone)]
struct ContractionParams {
    inputs: Vec<Arc<dyn ExecutionPlan>>,
    spec: Arc<ContractionSpec>,
    /// The plan that rows are handed over to.
    fallback_plan: Arc<dyn ExecutionPlan>,
    mode: Contractions,
    /// What is known of the rows of the result.
    statistics: Arc<Statistics>,
    /// What an execution leaves to the next one, in a loop or of a plan that is executed again.
    cache: Arc<EncodingCache>,
}

impl ContractionExec {
    /// A sum over inputs, or else by the rows of a plan that they are handed over to, of whose rows these statistics are known.
    pub fn new(
        inputs: Vec<Arc<dyn ExecutionPlan>>,
        spec: Arc<ContractionSpec>,
        fallback_plan: Arc<dyn ExecutionPlan>,
        mode: Contractions,
        statistics: Arc<Statistics>,
    ) -> Self {
        Self::from_params(ContractionParams { inputs, spec, fallback_plan, mode, statistics, cache: Arc::default() })
    }

    fn from_params(params: ContractionParams) -> Self {
        let properties = fallback_properties(&params.fallback_plan);
        Self { params: Arc::new(params), metrics: ExecutionPlanMetricsSet::new(), properties }
    }
}

impl DisplayAs for ContractionExec {
    fn fmt_as(&self, _t: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "ContractionExec: {}", self.params.spec)
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
        self.params.inputs.iter().collect()
    }

    without_expressions!();

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false; self.params.inputs.len()]
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        if children.len() != self.params.inputs.len() {
            return internal_err!("ContractionExec has {} inputs", self.params.inputs.len());
        }
        Ok(Arc::new(Self::from_params(ContractionParams { inputs: children, ..self.params.as_ref().clone() })))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn partition_statistics(&self, _partition: Option<usize>) -> Result<Arc<Statistics>> {
        Ok(Arc::new(self.params.statistics.as_ref().clone().to_inexact()))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        if partition > 0 {
            return internal_err!("ContractionExec has no partition {partition}");
        }
        let execution = Execution {
            params: Arc::clone(&self.params),
            context,
            metrics: self.metrics.clone(),
            baseline: BaselineMetrics::new(&self.metrics, partition),
        };
        let rows = stream::once(execution.execute()).try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), rows)))
    }
}

/// One execution.
struct Execution {
    params: Arc<ContractionParams>,
    context: Arc<TaskContext>,
    metrics: ExecutionPlanMetricsSet,
    baseline: BaselineMetrics,
}

impl Execution {
    /// The rows of the sum.
    async fn execute(self) -> Result<SendableRecordBatchStream> {
        let params = Arc::clone(&self.params);
        let ContractionParams { inputs, spec, mode, fallback_plan, cache, .. } = params.as_ref();
        if *mode == Contractions::Fallback {
            let streams = inputs.iter().map(|input| {
                (0..input.output_partitioning().partition_count())
                    .map(|partition| input.execute(partition, Arc::clone(&self.context)))
                    .collect::<Result<_>>()
            });
            let streams = streams.collect::<Result<_>>()?;
            return self.fall_back(streams);
        }
        let reservation = MemoryConsumer::new("sum of products").register(self.context.memory_pool());
        let read = BufferedInputs::read(inputs, &self.context, &reservation).await?;
        if !read.are_complete() {
            drop(reservation);
            return self.fall_back(read.streams(inputs));
        }
        let schema = fallback_plan.schema();
        let timer = self.baseline.elapsed_compute().timer();
        let sum = SumContext { spec, mode: *mode, reservation: &reservation, cache, schema: Arc::clone(&schema) };
        // What fails for a row of an input need not fail for one of the join.
        let computed = sum.compute(&read.batches()).ok().flatten();
        timer.done();
        let Some((computed, used)) = computed else {
            drop(reservation);
            return self.fall_back(read.streams(inputs));
        };
        drop(read);
        used.into_iter().for_each(|used| self.record_metrics(used));
        let baseline = self.baseline;
        let next = stream::try_unfold((computed, reservation), move |(mut computed, reservation)| {
            let timer = baseline.elapsed_compute().timer();
            let batch = computed.next();
            timer.done();
            let batch = batch.map(|batch| batch.map(|batch| batch.record_output(&baseline)));
            async move { Ok::<_, DataFusionError>(batch?.map(|batch| (batch, (computed, reservation)))) }
        });
        // Batches are not cut to the session's size: each part would count as the whole where memory is accounted for.
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, next)))
    }

    /// The rows that the plan behind the sum has.
    fn fall_back(self, streams: Vec<Streams>) -> Result<SendableRecordBatchStream> {
        execute_fallback(&self.params.fallback_plan, streams, self.context, &self.metrics, self.baseline)
    }

    /// Notes how the sum is computed.
    fn record_metrics(&self, used: KernelUse) {
        let metric = || MetricBuilder::new(&self.metrics);
        let kernel = match used.kernel {
            Kernel::Dense => "dense",
            Kernel::Sparse => "sparse",
        };
        metric().global_counter(kernel).add(1);
        metric().global_counter("pairs").add(used.cost.pairs as usize);
        metric().global_gauge("density").set_max((100.0 * used.cost.density).round() as usize);
    }
}

impl SumBatches {
    /// The next rows, none after the last.
    fn next(&mut self) -> Result<Option<RecordBatch>> {
        match self {
            Self::Pairs(pairs) => pairs.next(),
            Self::Rows(batches) => Ok(batches.pop()),
        }
    }
}
