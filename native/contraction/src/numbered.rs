//! The operator that sums by whole numbers.

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
use futures::{StreamExt, TryStreamExt, stream};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::handover::{handed_over, properties};
use crate::numbers::{Columns, Sums};
use crate::option::Contractions;
use crate::version::without_expressions;

/// Sums of rows by a column of whole numbers, as those of cotangents by the numbers of rows are.
///
/// Each number is the position of its sums. Where a number is none, negative, or far beyond as many as there are rows, or where memory
/// ends, the sums so far go as rows to the groups that DataFusion has planned, before those that have not been read.
#[derive(Debug)]
pub struct NumberedSumsExec {
    work: Arc<Work>,
    metrics: ExecutionPlanMetricsSet,
    properties: Arc<PlanProperties>,
}

/// What there is to do.
#[derive(Debug, Clone)]
struct Work {
    input: Arc<dyn ExecutionPlan>,
    columns: Columns,
    /// The plan that rows are handed over to.
    handover: Arc<dyn ExecutionPlan>,
    how: Contractions,
    /// What is known of the rows of the result.
    statistics: Arc<Statistics>,
}

impl NumberedSumsExec {
    /// The sums of columns of an input, or else those of a plan that its rows are handed over to, of whose rows these statistics are
    /// known.
    pub fn new(
        input: Arc<dyn ExecutionPlan>,
        columns: Columns,
        handover: Arc<dyn ExecutionPlan>,
        how: Contractions,
        statistics: Arc<Statistics>,
    ) -> Self {
        Self::of(Work { input, columns, handover, how, statistics })
    }

    fn of(work: Work) -> Self {
        let properties = properties(&work.handover);
        Self { work: Arc::new(work), metrics: ExecutionPlanMetricsSet::new(), properties }
    }
}

impl DisplayAs for NumberedSumsExec {
    fn fmt_as(&self, _t: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        let schema = self.work.input.schema();
        let name = |column: &usize| format!("{}@{column}", schema.field(*column).name());
        let Columns { number, summed } = &self.work.columns;
        let summed: Vec<_> = summed.iter().map(name).collect();
        write!(f, "NumberedSumsExec: by={}, sums=[{}]", name(number), summed.join(", "))
    }
}

impl ExecutionPlan for NumberedSumsExec {
    fn name(&self) -> &str {
        "NumberedSumsExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.work.input]
    }

    without_expressions!();

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        match <[_; 1]>::try_from(children) {
            Ok([input]) => Ok(Arc::new(Self::of(Work { input, ..self.work.as_ref().clone() }))),
            Err(_) => internal_err!("NumberedSumsExec has one input"),
        }
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn partition_statistics(&self, _partition: Option<usize>) -> Result<Arc<Statistics>> {
        Ok(Arc::new(self.work.statistics.as_ref().clone().to_inexact()))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        if partition > 0 {
            return internal_err!("NumberedSumsExec has no partition {partition}");
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

/// The sums of a partition of the input, and what of it has not been read.
struct Summed {
    sums: Sums,
    rest: Option<SendableRecordBatchStream>,
    reservation: MemoryReservation,
}

/// One execution.
struct Running {
    work: Arc<Work>,
    context: Arc<TaskContext>,
    metrics: ExecutionPlanMetricsSet,
    measured: BaselineMetrics,
}

impl Running {
    /// The rows of the sums.
    async fn rows(self) -> Result<SendableRecordBatchStream> {
        let mut partitions = self.summed().await?;
        let timer = self.measured.elapsed_compute().timer();
        let are_read = partitions.iter().all(|partition| partition.rest.is_none());
        // The same sums from run to run: partitions are added in their order.
        let mut others = partitions.split_off(1.min(partitions.len())).into_iter();
        let Some(mut first) = partitions.pop() else { return internal_err!("an input without partitions") };
        let mut left = vec![];
        for other in others.by_ref() {
            if !are_read || !left.is_empty() || !first.sums.add_all(&other.sums, &first.reservation) {
                left.push(other);
            }
        }
        timer.done();
        if !(are_read && left.is_empty()) {
            return self.handed_over(first, left);
        }
        let schema = self.work.handover.schema();
        let Summed { sums, reservation, .. } = first;
        let timer = self.measured.elapsed_compute().timer();
        let batch = sums.result(&schema)?.record_output(&self.measured);
        timer.done();
        MetricBuilder::new(&self.metrics).global_counter("numbers").add(batch.num_rows());
        // The rows are one batch: those that look them up would have to put parts together.
        let rows = stream::iter((batch.num_rows() > 0).then_some(batch)).map(move |batch| {
            let _held = &reservation;
            Ok(batch)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
    }

    /// The sums of all partitions, which are read side by side until a row of one of them cannot be added.
    async fn summed(&self) -> Result<Vec<Summed>> {
        let Work { input, columns, how, .. } = self.work.as_ref();
        let reservation = MemoryConsumer::new("sums by number").register(self.context.memory_pool());
        let is_over = Arc::new(AtomicBool::new(*how == Contractions::HandedOver));
        let mut running = JoinSet::new();
        for partition in 0..input.output_partitioning().partition_count() {
            let stream = input.execute(partition, Arc::clone(&self.context))?;
            let summed = Summed { sums: Sums::new(columns.clone()), rest: None, reservation: reservation.new_empty() };
            let reading = summed.read(stream, Arc::clone(&is_over), self.measured.clone());
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

    /// The rows that the plan behind the sums has.
    fn handed_over(self, first: Summed, others: Vec<Summed>) -> Result<SendableRecordBatchStream> {
        let schema = self.work.input.schema();
        let size = self.context.session_config().batch_size();
        let count = self.work.input.output_partitioning().partition_count();
        let mut streams: Vec<_> =
            std::iter::once(first).chain(others).map(|summed| summed.stream(Arc::clone(&schema), size)).collect();
        // What has been added to the first is there no more.
        streams.resize_with(count, || Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&schema), stream::empty())));
        handed_over(&self.work.handover, vec![streams], self.context, &self.metrics, self.measured)
    }
}

impl Summed {
    /// Adds the rows of a partition, until one of this or of another partition cannot be added.
    async fn read(
        mut self,
        mut rows: SendableRecordBatchStream,
        is_over: Arc<AtomicBool>,
        measured: BaselineMetrics,
    ) -> Result<Self> {
        while !is_over.load(Ordering::Relaxed) {
            let Some(batch) = rows.next().await.transpose()? else { return Ok(self) };
            let timer = measured.elapsed_compute().timer();
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

    /// The sums as rows, and then what has not been read.
    fn stream(self, schema: SchemaRef, size: usize) -> SendableRecordBatchStream {
        let Self { sums, rest, reservation } = self;
        let of_rows = Arc::clone(&schema);
        let read = sums.parts(size).map(move |numbers| {
            let _held = &reservation;
            sums.rows(numbers, &of_rows)
        });
        let rest = rest.map_or_else(|| stream::empty().boxed(), StreamExt::boxed);
        Box::pin(RecordBatchStreamAdapter::new(schema, stream::iter(read).chain(rest)))
    }
}
