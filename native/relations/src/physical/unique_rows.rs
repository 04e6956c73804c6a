//! Asserts that row numbers are unique.

use arrow::array::UInt64Array;
use arrow::datatypes::SchemaRef;
use datafusion_common::cast::as_uint64_array;
use datafusion_common::{HashMap, Result, Statistics, exec_datafusion_err, internal_err};
use datafusion_execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion_execution::{SendableRecordBatchStream, TaskContext};
use datafusion_physical_expr::EquivalenceProperties;
use datafusion_physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet, RecordOutput};
use datafusion_physical_plan::stream::RecordBatchStreamAdapter;
use datafusion_physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, Partitioning, PlanProperties,
};
use futures::StreamExt;
use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, Weak};
use xql_autodiff::vocabulary::refusals::Refused;

use super::batch::projected;
use super::lock::locked;
use crate::version::{statistics, without_expressions};

/// Passes rows on, and fails if a row number occurs twice within all partitions of one execution.
///
/// It takes a bit for each row, for which the session's pool accounts. A NULL is no number, and may come any number of times.
#[derive(Debug)]
pub struct UniqueRowsExec {
    input: Arc<dyn ExecutionPlan>,
    /// The position of the column of the input that numbers the rows.
    row: usize,
    /// The columns of the input that are passed on, under the names of the schema.
    projection: Vec<usize>,
    execution: Mutex<Execution>,
    metrics: ExecutionPlanMetricsSet,
    properties: Arc<PlanProperties>,
}

/// The state that the partitions of one execution share.
#[derive(Debug, Default)]
struct Execution {
    context: Weak<TaskContext>,
    /// The partitions that have been requested. A partition that is requested again belongs to another execution.
    begun: HashSet<usize>,
    seen: Option<Arc<Mutex<Seen>>>,
}

impl UniqueRowsExec {
    /// Creates the columns of an input at these positions under the names of a schema, where column number `row` of the input
    /// has the numbers of the rows.
    pub fn new(input: Arc<dyn ExecutionPlan>, row: usize, projection: Vec<usize>, schema: SchemaRef) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(input.output_partitioning().partition_count()),
            input.pipeline_behavior(),
            input.boundedness(),
        );
        Self {
            input,
            row,
            projection,
            execution: Mutex::default(),
            metrics: ExecutionPlanMetricsSet::new(),
            properties: Arc::new(properties),
        }
    }

    /// Returns the numbers that have been seen in the execution of a partition.
    fn seen(&self, partition: usize, context: &Arc<TaskContext>) -> Arc<Mutex<Seen>> {
        let mut execution = locked(&self.execution);
        let is_same = std::ptr::eq(execution.context.as_ptr(), Arc::as_ptr(context));
        let is_new = execution.begun.insert(partition);
        match execution.seen.clone() {
            Some(seen) if is_same && is_new => seen,
            _ => {
                let consumer = MemoryConsumer::new("numbers of rows");
                let seen = Arc::new(Mutex::new(Seen::new(consumer.register(context.memory_pool()))));
                let (context, begun) = (Arc::downgrade(context), HashSet::from([partition]));
                *execution = Execution { context, begun, seen: Some(Arc::clone(&seen)) };
                seen
            }
        }
    }
}

impl DisplayAs for UniqueRowsExec {
    fn fmt_as(&self, _t: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "UniqueRowsExec: row={}", self.input.schema().field(self.row).name())
    }
}

impl ExecutionPlan for UniqueRowsExec {
    fn name(&self) -> &str {
        "UniqueRowsExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    without_expressions!();

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        let [input] = children.as_slice() else { return internal_err!("UniqueRowsExec has one input") };
        Ok(Arc::new(Self::new(Arc::clone(input), self.row, self.projection.clone(), self.schema())))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn partition_statistics(&self, partition: Option<usize>) -> Result<Arc<Statistics>> {
        let statistics = statistics(&self.input, partition)?;
        Ok(Arc::new(statistics.as_ref().clone().project(Some(&self.projection))))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let seen = self.seen(partition, &context);
        let input = self.input.execute(partition, context)?;
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let (row, projection, schema) = (self.row, self.projection.clone(), self.schema());
        let checked = input.map(move |batch| {
            let batch = batch?;
            let timer = metrics.elapsed_compute().timer();
            if let Some(number) = locked(&seen).first_known(as_uint64_array(batch.column(row))?)? {
                return Err(Refused::Other.mark(exec_datafusion_err!(
                    "a gradient by row has two cotangents for one row, number {number}: this is a fault of xql-ffi, and the derivatives \
                     would be wrong. Please report the statement"
                )));
            }
            let batch = projected(&batch, &projection, &schema)?;
            timer.done();
            Ok(batch.record_output(&metrics))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), checked)))
    }
}

/// The number of row numbers in one chunk of memory.
const CHUNK: u64 = 1 << 16;

/// A bit for each number from a multiple of [`CHUNK`] on.
type Bits = Box<[u64; CHUNK as usize / 64]>;

/// The numbers that have come.
#[derive(Debug)]
struct Seen {
    chunks: HashMap<u64, Bits>,
    reservation: MemoryReservation,
}

impl Seen {
    fn new(reservation: MemoryReservation) -> Self {
        Self { chunks: HashMap::new(), reservation }
    }

    /// Records numbers. Returns the first that has been recorded before, and stops there.
    fn first_known(&mut self, numbers: &UInt64Array) -> Result<Option<u64>> {
        let mut numbers = numbers.iter().flatten().peekable();
        while let Some(chunk) = numbers.peek().map(|number| number / CHUNK) {
            let bits = self.bits(chunk)?;
            while let Some(number) = numbers.next_if(|number| number / CHUNK == chunk) {
                let (word, bit) = ((number % CHUNK / 64) as usize, 1 << (number % 64));
                if bits[word] & bit != 0 {
                    return Ok(Some(number));
                }
                bits[word] |= bit;
            }
        }
        Ok(None)
    }

    /// Returns the bits of a chunk, for which the pool accounts from the first one on.
    fn bits(&mut self, chunk: u64) -> Result<&mut Bits> {
        if !self.chunks.contains_key(&chunk) {
            self.reservation.try_grow(size_of::<[u64; CHUNK as usize / 64]>())?;
        }
        Ok(self.chunks.entry(chunk).or_insert_with(|| Box::new([0; CHUNK as usize / 64])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{ArrayRef, Float64Array, RecordBatch};
    use arrow::datatypes::{DataType, Field, Schema};
    use datafusion::datasource::memory::MemorySourceConfig;
    use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryPool, UnboundedMemoryPool};
    use datafusion::execution::runtime_env::RuntimeEnvBuilder;
    use datafusion_physical_plan::collect;
    use std::time::{Duration, Instant};

    fn seen(pool: &Arc<dyn MemoryPool>) -> Seen {
        Seen::new(MemoryConsumer::new("test").register(pool))
    }

    /// Rows of these numbers, by partitions and batches.
    fn rows(partitions: &[&[&[Option<u64>]]]) -> Result<Arc<dyn ExecutionPlan>> {
        let schema = Arc::new(Schema::new(vec![
            Field::new("row", DataType::UInt64, true),
            Field::new("cotangent", DataType::Float64, true),
        ]));
        let batch = |numbers: &[Option<u64>]| -> Result<RecordBatch> {
            let cotangents = numbers.iter().map(|number| number.map(|number| number as f64));
            let columns: Vec<ArrayRef> =
                vec![Arc::new(UInt64Array::from(numbers.to_vec())), Arc::new(cotangents.collect::<Float64Array>())];
            Ok(RecordBatch::try_new(Arc::clone(&schema), columns)?)
        };
        let partitions: Vec<Vec<_>> = partitions
            .iter()
            .map(|batches| batches.iter().map(|numbers| batch(numbers)).collect())
            .collect::<Result<_>>()?;
        Ok(MemorySourceConfig::try_new_exec(&partitions, schema, None)?)
    }

    fn checked(partitions: &[&[&[Option<u64>]]]) -> Result<Arc<dyn ExecutionPlan>> {
        let input = rows(partitions)?;
        let schema = Arc::new(Schema::new(vec![Field::new("c", DataType::Float64, true)]));
        Ok(Arc::new(UniqueRowsExec::new(input, 0, vec![1], schema)))
    }

    #[test]
    fn a_number_is_known_from_the_second_time_on() -> Result<()> {
        let pool: Arc<dyn MemoryPool> = Arc::new(UnboundedMemoryPool::default());
        let mut seen = seen(&pool);
        assert_eq!(seen.first_known(&UInt64Array::from(vec![0, 63, 64, CHUNK, u64::MAX, 1]))?, None);
        assert_eq!(seen.first_known(&UInt64Array::from(vec![Some(2), None, None, Some(65)]))?, None);
        for known in [0, 63, 64, CHUNK, u64::MAX, 1, 2, 65] {
            assert_eq!(seen.first_known(&UInt64Array::from(vec![known]))?, Some(known));
        }
        // Three chunks of 8 KiB.
        assert_eq!(pool.reserved(), 3 * 8192);
        drop(seen);
        assert_eq!(pool.reserved(), 0);
        Ok(())
    }

    /// Takes a bit for each row, and not much time.
    #[test]
    fn a_million_rows_take_a_bit_each() -> Result<()> {
        let pool: Arc<dyn MemoryPool> = Arc::new(UnboundedMemoryPool::default());
        let mut seen = seen(&pool);
        let batches: Vec<_> = (0..1_000_000).step_by(8192).map(|from| (from..from + 8192).collect()).collect();
        let start = Instant::now();
        for numbers in &batches {
            assert_eq!(seen.first_known(numbers)?, None);
        }
        assert!(pool.reserved() < 1_100_000 / 8, "{} bytes", pool.reserved());
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
        Ok(())
    }

    #[tokio::test]
    async fn rows_that_come_once_pass() -> Result<()> {
        let plan = checked(&[&[&[Some(0), Some(2)], &[None]], &[&[Some(1), None]]])?;
        let context = Arc::new(TaskContext::default());
        let batches = collect(Arc::clone(&plan), Arc::clone(&context)).await?;
        assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 5);
        assert_eq!(plan.metrics().and_then(|metrics| metrics.output_rows()), Some(5));
        // The same plan again, in the same context and in another one.
        collect(Arc::clone(&plan), context).await?;
        collect(plan, Arc::default()).await?;
        Ok(())
    }

    #[tokio::test]
    async fn a_row_that_comes_twice_is_an_error() -> Result<()> {
        for partitions in [&[&[&[Some(7), Some(7)][..]][..]][..], &[&[&[Some(1)], &[Some(7)]], &[&[Some(7)]]]] {
            let error = collect(checked(partitions)?, Arc::default()).await.expect_err("it comes twice").to_string();
            assert!(
                error.contains("DifferentiationError: a gradient by row has two cotangents for one row, number 7"),
                "{error}"
            );
        }
        Ok(())
    }

    #[tokio::test]
    async fn memory_is_asked_for() -> Result<()> {
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(8192));
        let runtime = RuntimeEnvBuilder::new().with_memory_pool(Arc::clone(&pool)).build_arc()?;
        let context = Arc::new(TaskContext::default().with_runtime(runtime));
        let fits = checked(&[&[&[Some(0), Some(CHUNK - 1)]]])?;
        collect(fits, Arc::clone(&context)).await?;
        let error = collect(checked(&[&[&[Some(0), Some(CHUNK)]]])?, context).await.expect_err("it does not fit");
        assert!(error.to_string().contains("Resources exhausted"), "{error}");
        Ok(())
    }
}
