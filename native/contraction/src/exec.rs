//! The operator that computes sums of products.

use arrow::array::RecordBatch;
use datafusion_common::{DataFusionError, Result, Statistics, internal_err};
use datafusion_execution::memory_pool::MemoryConsumer;
use datafusion_execution::{SendableRecordBatchStream, TaskContext};
use datafusion_physical_plan::metrics::{
    BaselineMetrics, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet, RecordOutput,
};
use datafusion_physical_plan::stream::RecordBatchStreamAdapter;
use datafusion_physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties};
use futures::stream;
use std::fmt;
use std::sync::Arc;

use crate::batch_streams::flatten_stream;
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
/// It buffers its inputs and computes the sum with the cheapest kernel for their numbers of rows and keys. If memory runs out, or a key
/// cannot be encoded, it continues with DataFusion's join and aggregation over the same rows. `EXPLAIN` shows the sum with the inputs as
/// numbers; `EXPLAIN ANALYZE` the kernel, the pairs of rows, and which percentage of all pairs of a dense product these are (`density`).
#[derive(Debug)]
pub struct ContractionExec {
    params: Arc<ContractionParams>,
    metrics: ExecutionPlanMetricsSet,
    properties: Arc<PlanProperties>,
}

/// The definition of the operator.
#[derive(Debug, Clone)]
struct ContractionParams {
    inputs: Vec<Arc<dyn ExecutionPlan>>,
    spec: Arc<ContractionSpec>,
    /// DataFusion's plan for the same rows.
    fallback_plan: Arc<dyn ExecutionPlan>,
    mode: Contractions,
    /// The statistics of the result.
    statistics: Arc<Statistics>,
    /// What an execution stores for the next one.
    cache: Arc<EncodingCache>,
}

impl ContractionExec {
    /// Creates the operator over inputs, with its fallback plan and the statistics of its result.
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
        Ok(flatten_stream(self.schema(), execution.execute()))
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
    /// Computes the sum, or executes the fallback plan.
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
        if !read.is_complete() {
            drop(reservation);
            return self.fall_back(read.streams(inputs));
        }
        let schema = fallback_plan.schema();
        let timer = self.baseline.elapsed_compute().timer();
        let sum = SumContext { spec, mode: *mode, reservation: &reservation, cache, schema: Arc::clone(&schema) };
        // An expression may fail for a row of an input that is in no row of the join: the fallback plan decides.
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
        // Batches are not cut to the session's size: each slice would count as the whole where memory is accounted for.
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, next)))
    }

    /// Executes the fallback plan.
    fn fall_back(self, streams: Vec<Streams>) -> Result<SendableRecordBatchStream> {
        execute_fallback(&self.params.fallback_plan, streams, self.context, &self.metrics, self.baseline)
    }

    /// Records the kernel.
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
    /// Returns the next batch, `None` after the last.
    fn next(&mut self) -> Result<Option<RecordBatch>> {
        match self {
            Self::Pairs(pairs) => pairs.next(),
            Self::Rows(batches) => Ok(batches.pop()),
        }
    }
}
