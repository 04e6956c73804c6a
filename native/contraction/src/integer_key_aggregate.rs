//! The operator that sums by integer keys.

use arrow::datatypes::SchemaRef;
use datafusion_common::{DataFusionError, Result, Statistics, internal_err};
use datafusion_common_runtime::JoinSet;
use datafusion_execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion_execution::{SendableRecordBatchStream, TaskContext};
use datafusion_physical_plan::metrics::{
    BaselineMetrics, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet, RecordOutput,
};
use datafusion_physical_plan::stream::RecordBatchStreamAdapter;
use datafusion_physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties};
use futures::{StreamExt, stream};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::batch_streams::flatten_stream;
use crate::fallback::{execute_fallback, fallback_properties};
use crate::integer_key_sums::{IntegerKeySums, SumColumns};
use crate::option::Contractions;
use crate::version::without_expressions;

/// Sums grouped by one integer key, as those of cotangents by row number are, or by two, as those of a Jacobian.
///
/// A single key is an index of an array of sums, so there is no hash table; of two keys, each pair has an index. If a key is NULL, if a
/// single one is negative or far above the number of rows, or if memory runs out, the operator continues with DataFusion's aggregation: over
/// its sums so far as rows, and then the rows that it has not read.
#[derive(Debug)]
pub struct IntegerKeyAggregateExec {
    params: Arc<AggregateParams>,
    metrics: ExecutionPlanMetricsSet,
    properties: Arc<PlanProperties>,
}

/// The definition of the operator.
#[derive(Debug, Clone)]
struct AggregateParams {
    input: Arc<dyn ExecutionPlan>,
    columns: SumColumns,
    /// DataFusion's aggregation.
    fallback_plan: Arc<dyn ExecutionPlan>,
    mode: Contractions,
    /// The statistics of the result.
    statistics: Arc<Statistics>,
}

impl IntegerKeyAggregateExec {
    /// Creates the operator over an input, with its fallback plan and the statistics of its result.
    pub fn new(
        input: Arc<dyn ExecutionPlan>,
        columns: SumColumns,
        fallback_plan: Arc<dyn ExecutionPlan>,
        mode: Contractions,
        statistics: Arc<Statistics>,
    ) -> Self {
        Self::from_params(AggregateParams { input, columns, fallback_plan, mode, statistics })
    }

    fn from_params(params: AggregateParams) -> Self {
        let properties = fallback_properties(&params.fallback_plan);
        Self { params: Arc::new(params), metrics: ExecutionPlanMetricsSet::new(), properties }
    }
}

impl DisplayAs for IntegerKeyAggregateExec {
    fn fmt_as(&self, _t: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        let schema = self.params.input.schema();
        let name = |column: &usize| format!("{}@{column}", schema.field(*column).name());
        let SumColumns { keys, summed } = &self.params.columns;
        let [keys, summed] = [keys, summed].map(|columns| columns.iter().map(name).collect::<Vec<_>>().join(", "));
        write!(f, "IntegerKeyAggregateExec: by=[{keys}], sums=[{summed}]")
    }
}

impl ExecutionPlan for IntegerKeyAggregateExec {
    fn name(&self) -> &str {
        "IntegerKeyAggregateExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.params.input]
    }

    without_expressions!();

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        match <[_; 1]>::try_from(children) {
            Ok([input]) => Ok(Arc::new(Self::from_params(AggregateParams { input, ..self.params.as_ref().clone() }))),
            Err(_) => internal_err!("IntegerKeyAggregateExec has one input"),
        }
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn partition_statistics(&self, _partition: Option<usize>) -> Result<Arc<Statistics>> {
        Ok(Arc::new(self.params.statistics.as_ref().clone().to_inexact()))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        if partition > 0 {
            return internal_err!("IntegerKeyAggregateExec has no partition {partition}");
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

/// The sums of one partition, and its rows that have not been read.
struct PartitionSums {
    sums: IntegerKeySums,
    rest: Option<SendableRecordBatchStream>,
    reservation: MemoryReservation,
}

/// One execution.
struct Execution {
    params: Arc<AggregateParams>,
    context: Arc<TaskContext>,
    metrics: ExecutionPlanMetricsSet,
    baseline: BaselineMetrics,
}

impl Execution {
    /// Computes the sums, or executes the fallback plan.
    async fn execute(self) -> Result<SendableRecordBatchStream> {
        let mut partitions = self.sum_partitions().await?;
        let timer = self.baseline.elapsed_compute().timer();
        let is_complete = partitions.iter().all(|partition| partition.rest.is_none());
        // Partitions are added in their order, so the sums are the same in every execution.
        let mut others = partitions.split_off(1.min(partitions.len())).into_iter();
        let Some(mut first) = partitions.pop() else { return internal_err!("an input without partitions") };
        let mut unmerged = vec![];
        for other in others.by_ref() {
            if !is_complete || !unmerged.is_empty() || !first.sums.merge(&other.sums, &first.reservation) {
                unmerged.push(other);
            }
        }
        timer.done();
        if !(is_complete && unmerged.is_empty()) {
            return self.fall_back(first, unmerged);
        }
        let schema = self.params.fallback_plan.schema();
        let PartitionSums { sums, reservation, .. } = first;
        let timer = self.baseline.elapsed_compute().timer();
        let batch = sums.to_result(&schema)?.record_output(&self.baseline);
        timer.done();
        MetricBuilder::new(&self.metrics).global_counter("keys").add(batch.num_rows());
        // The rows are one batch, since a join by key would concatenate several.
        let rows = stream::iter((batch.num_rows() > 0).then_some(batch)).map(move |batch| {
            let _reserved = &reservation;
            Ok(batch)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
    }

    /// Sums all partitions concurrently, until a row of one of them cannot be added. In a session of one partition they are summed one after
    /// the other as one, as those of a union are.
    async fn sum_partitions(&self) -> Result<Vec<PartitionSums>> {
        let AggregateParams { input, columns, mode, .. } = self.params.as_ref();
        let reservation = MemoryConsumer::new("sums by number").register(self.context.memory_pool());
        let is_over = Arc::new(AtomicBool::new(*mode == Contractions::Fallback));
        let mut running = JoinSet::new();
        let partitions = 0..input.output_partitioning().partition_count();
        let streams = partitions.map(|partition| input.execute(partition, Arc::clone(&self.context)));
        let mut streams = streams.collect::<Result<Vec<_>>>()?;
        if self.context.session_config().target_partitions() == 1 && streams.len() > 1 {
            let whole = stream::iter(streams).flatten();
            streams = vec![Box::pin(RecordBatchStreamAdapter::new(input.schema(), whole))];
        }
        for (partition, stream) in streams.into_iter().enumerate() {
            let summed = PartitionSums {
                sums: IntegerKeySums::new(columns.clone()),
                rest: None,
                reservation: reservation.new_empty(),
            };
            let reading = summed.read(stream, Arc::clone(&is_over), self.baseline.clone());
            running.spawn(async move { Ok::<_, DataFusionError>((partition, reading.await?)) });
        }
        let mut found = vec![];
        while let Some(read) = running.join_next().await {
            match read {
                Ok(read) => found.push(read?),
                Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                Err(_) => return internal_err!("reading the rows of sums was cancelled"),
            }
        }
        found.sort_by_key(|(partition, _)| *partition);
        Ok(found.into_iter().map(|(_, summed)| summed).collect())
    }

    /// Executes the fallback plan over the sums so far and the remaining rows.
    fn fall_back(self, first: PartitionSums, others: Vec<PartitionSums>) -> Result<SendableRecordBatchStream> {
        let schema = self.params.input.schema();
        let size = self.context.session_config().batch_size();
        let count = self.params.input.output_partitioning().partition_count();
        let mut streams: Vec<_> =
            std::iter::once(first).chain(others).map(|summed| summed.into_stream(Arc::clone(&schema), size)).collect();
        // The partitions that were merged into the first have no rows.
        streams.resize_with(count, || Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&schema), stream::empty())));
        execute_fallback(&self.params.fallback_plan, vec![streams], self.context, &self.metrics, self.baseline)
    }
}

impl PartitionSums {
    /// Adds the rows of a partition, until one of this or another partition cannot be added.
    async fn read(
        mut self,
        mut rows: SendableRecordBatchStream,
        is_over: Arc<AtomicBool>,
        baseline: BaselineMetrics,
    ) -> Result<Self> {
        while !is_over.load(Ordering::Relaxed) {
            let Some(batch) = rows.next().await.transpose()? else { return Ok(self) };
            let timer = baseline.elapsed_compute().timer();
            let is_added = self.sums.add(&batch, &self.reservation)?;
            timer.done();
            if !is_added {
                is_over.store(true, Ordering::Relaxed);
                let schema = rows.schema();
                rows = Box::pin(RecordBatchStreamAdapter::new(schema, stream::iter([Ok(batch)]).chain(rows)));
            }
        }
        self.rest = Some(rows);
        Ok(self)
    }

    /// Returns the sums as rows, followed by the rows that have not been read.
    fn into_stream(self, schema: SchemaRef, size: usize) -> SendableRecordBatchStream {
        let Self { sums, rest, reservation } = self;
        let input_schema = Arc::clone(&schema);
        let read = sums.slot_ranges(size).map(move |slots| {
            let _reserved = &reservation;
            sums.to_input_rows(slots, &input_schema)
        });
        let rest = rest.map_or_else(|| stream::empty().boxed(), StreamExt::boxed);
        Box::pin(RecordBatchStreamAdapter::new(schema, stream::iter(read).chain(rest)))
    }
}
