//! The operator of a join in which each row looks one other up.

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions};
use arrow::compute::{concat, concat_batches, filter, filter_record_batch, is_not_null, take};
use datafusion_common::{DataFusionError, JoinType, NullEquality, Result, Statistics, internal_err};
use datafusion_execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion_execution::{SendableRecordBatchStream, TaskContext};
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion_physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet, RecordOutput};
use datafusion_physical_plan::stream::RecordBatchStreamAdapter;
use datafusion_physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties};
use futures::future::{BoxFuture, Shared};
use futures::{FutureExt, StreamExt, TryFutureExt, TryStreamExt, stream};
use std::fmt;
use std::sync::{Arc, OnceLock};

use crate::fallback::{InputExec, Streams, execute_fallback, with_children};
use crate::input_buffer::memory_size;
use crate::integers::can_convert;
use crate::option::Contractions;
use crate::unique_index::{Matches, UniqueIndex};
use crate::version::{delegate_distribution, feeds_dynamic_filter, statistics, without_expressions};

/// A join of two inputs by whole numbers, of which no two rows of the first have the same: a row of the second looks its partner up.
///
/// So are joins by the numbers of rows, and by the keys of groups. The rows of the second input are not copied where each has a partner.
/// If two rows of the first have the same keys, or these lie far apart, both inputs go to the join that DataFusion has planned.
#[derive(Debug)]
pub struct UniqueKeyJoinExec {
    params: Arc<JoinParams>,
    /// The first input, where several partitions of the second one look rows up in it.
    shared: Option<Arc<OnceLock<BuildFuture>>>,
    metrics: ExecutionPlanMetricsSet,
}

/// The first input, which is read once, and goes on being read when one of those that wait for it is gone.
type BuildFuture = Shared<BoxFuture<'static, Result<Arc<BuildSide>, Arc<DataFusionError>>>>;

/// What there is to do.
#[derive(Debug)]
struct JoinParams {
    /// The join of DataFusion.
    join: Arc<dyn ExecutionPlan>,
    inputs: [Arc<dyn ExecutionPlan>; 2],
    /// The keys of both inputs.
    keys: [Vec<Arc<dyn PhysicalExpr>>; 2],
    /// Whether NULL is equal to NULL.
    nulls: bool,
    /// Whether rows of the second input that have no partner stay.
    keeps_unmatched: bool,
    /// Whether each partition of the second input has its partners in the same one of the first.
    by_partition: bool,
    /// The columns of the result: the input and the number there.
    columns: Vec<(usize, usize)>,
    mode: Contractions,
}

/// The first input.
#[derive(Debug)]
struct BuildSide {
    rows: BuildRows,
    _reservation: MemoryReservation,
}

#[derive(Debug)]
enum BuildRows {
    /// All of them, and where they stand by their keys.
    Indexed(RecordBatch, UniqueIndex),
    /// As they have come, as they are not looked up.
    Unindexed(Vec<RecordBatch>),
}

impl UniqueKeyJoinExec {
    /// A join of DataFusion as a lookup, if it may be one. The rows of its first input decide whether it is.
    ///
    /// # Errors
    /// If a key is not one of the inputs.
    pub fn from_hash_join(join: &Arc<dyn ExecutionPlan>, mode: Contractions) -> Result<Option<Self>> {
        let Some(node) = join.downcast_ref::<HashJoinExec>() else { return Ok(None) };
        let is_plain = node.filter().is_none() && !node.null_aware && node.fetch().is_none();
        // What reads a file may skip rows by the keys of the first input.
        if !is_plain || feeds_dynamic_filter(node) {
            return Ok(None);
        }
        match swap_inputs(node)? {
            Some(swapped) => Self::try_new(&swapped, mode),
            None => Self::try_new(join, mode),
        }
    }

    fn try_new(join: &Arc<dyn ExecutionPlan>, mode: Contractions) -> Result<Option<Self>> {
        let Some(node) = join.downcast_ref::<HashJoinExec>() else { return Ok(None) };
        let keeps_unmatched = match node.join_type() {
            JoinType::Inner => false,
            JoinType::Right => true,
            _ => return Ok(None),
        };
        if *node.partition_mode() == PartitionMode::Auto {
            return Ok(None);
        }
        let inputs = [node.left(), node.right()].map(Arc::clone);
        let mut keys = [vec![], vec![]];
        for (left, right) in node.on() {
            for (side, key) in [left, right].into_iter().enumerate() {
                if !can_convert(&key.data_type(&inputs[side].schema())?) {
                    return Ok(None);
                }
                keys[side].push(Arc::clone(key));
            }
        }
        let width = inputs[0].schema().fields().len();
        let all = width + inputs[1].schema().fields().len();
        let column = |index: usize| if index < width { (0, index) } else { (1, index - width) };
        let columns = match &node.projection {
            Some(projection) => projection.iter().map(|index| column(*index)).collect(),
            None => (0..all).map(column).collect(),
        };
        let by_partition = *node.partition_mode() == PartitionMode::Partitioned;
        let nulls = node.null_equality() == NullEquality::NullEqualsNull;
        let is_shared = !by_partition && inputs[1].output_partitioning().partition_count() > 1;
        let params =
            JoinParams { join: Arc::clone(join), inputs, keys, nulls, keeps_unmatched, by_partition, columns, mode };
        let shared = is_shared.then(Arc::default);
        Ok(Some(Self { params: Arc::new(params), shared, metrics: ExecutionPlanMetricsSet::new() }))
    }
}

/// A join that keeps all rows of its first input, of which nothing says that they are fewer than those of the second, as one that keeps
/// those of its second. DataFusion does this where it knows how many rows there are.
fn swap_inputs(join: &HashJoinExec) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if *join.join_type() != JoinType::Left {
        return Ok(None);
    }
    let mode = *join.partition_mode();
    let [left, right] = [join.left(), join.right()].map(|input| statistics(input, None));
    let is_smaller = match [left?, right?].map(|rows| rows.num_rows.get_value().copied()) {
        [Some(left), Some(right)] => right > left,
        _ => false,
    };
    // The first input of a join in one piece has one partition.
    let is_divided = mode != PartitionMode::Partitioned && join.right().output_partitioning().partition_count() > 1;
    if is_smaller || is_divided {
        return Ok(None);
    }
    let on = join.on().iter().map(|(left, right)| (Arc::clone(right), Arc::clone(left))).collect();
    let [left, right] = [join.left(), join.right()].map(|input| input.schema().fields().len());
    let columns = join.projection.as_ref().map_or_else(|| (0..left + right).collect::<Vec<_>>(), |all| all.to_vec());
    let swap = |column: usize| if column < left { right + column } else { column - left };
    // DataFusion's own way gives up where a filter for scans has been made, though none reads it.
    let swapped = HashJoinExec::try_new(
        Arc::clone(join.right()),
        Arc::clone(join.left()),
        on,
        None,
        &JoinType::Right,
        Some(columns.into_iter().map(swap).collect()),
        mode,
        join.null_equality(),
        false,
    )?;
    Ok(Some(Arc::new(swapped)))
}

impl DisplayAs for UniqueKeyJoinExec {
    fn fmt_as(&self, _t: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        let [left, right] = &self.params.keys;
        let keys: Vec<_> = left.iter().zip(right).map(|(left, right)| format!("{left} of 0 = {right} of 1")).collect();
        write!(
            f,
            "UniqueKeyJoinExec: on=[{}]{}",
            keys.join(", "),
            if self.params.keeps_unmatched { ", rows of 0 or none" } else { "" }
        )
    }
}

impl ExecutionPlan for UniqueKeyJoinExec {
    fn name(&self) -> &str {
        "UniqueKeyJoinExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.params.join.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.params.inputs.iter().collect()
    }

    without_expressions!();

    // A plan may be part of another one, which is optimised as a whole.
    delegate_distribution!(params.join);

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        self.params.join.benefits_from_input_partitioning()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        // DataFusion would sort the input instead by what stands at the same place among its columns.
        let reorders = (0..).zip(&self.params.columns).any(|(place, (side, index))| {
            let before = if *side == 0 { 0 } else { self.params.inputs[0].schema().fields().len() };
            place != before + index
        });
        if reorders { vec![false; 2] } else { self.params.join.maintains_input_order() }
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        let join = with_children(&self.params.join, children)?;
        Ok(Self::try_new(&join, self.params.mode)?.map_or(Arc::clone(&join), |lookup| Arc::new(lookup)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn partition_statistics(&self, partition: Option<usize>) -> Result<Arc<Statistics>> {
        statistics(&self.params.join, partition)
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let execution = JoinExecution {
            params: Arc::clone(&self.params),
            shared: self.shared.clone(),
            partition,
            context,
            metrics: self.metrics.clone(),
            baseline: BaselineMetrics::new(&self.metrics, partition),
        };
        let rows = stream::once(execution.execute()).try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), rows)))
    }
}

/// One execution of a partition.
struct JoinExecution {
    params: Arc<JoinParams>,
    shared: Option<Arc<OnceLock<BuildFuture>>>,
    partition: usize,
    context: Arc<TaskContext>,
    metrics: ExecutionPlanMetricsSet,
    baseline: BaselineMetrics,
}

impl JoinExecution {
    /// The rows of the join.
    async fn execute(self) -> Result<SendableRecordBatchStream> {
        let start = || {
            let (params, context, baseline) = (&self.params, &self.context, &self.baseline);
            build(Arc::clone(params), self.partition, Arc::clone(context), baseline.clone())
        };
        let built = match &self.shared {
            Some(shared) => {
                let building = shared.get_or_init(|| start().map_err(Arc::new).boxed().shared()).clone();
                building.await.map_err(DataFusionError::Shared)?
            }
            None => start().await?,
        };
        let Self { params, partition, context, metrics, baseline, .. } = self;
        let schema = params.join.schema();
        let probe = || params.inputs[1].execute(partition, Arc::clone(&context));
        let rows = match &built.rows {
            BuildRows::Indexed(rows, _) => rows,
            BuildRows::Unindexed(batches) => {
                let read = stream::iter(batches.clone().into_iter().map(Ok));
                let read = RecordBatchStreamAdapter::new(params.inputs[0].schema(), read);
                let streams = [(params.build_partition(partition), Box::pin(read) as _), (partition, probe()?)];
                return execute_fallback(
                    &params.fallback_plan()?,
                    params.pad_partitions(streams),
                    context,
                    &metrics,
                    baseline,
                );
            }
        };
        if rows.num_rows() == 0 && !params.keeps_unmatched {
            return Ok(Box::pin(RecordBatchStreamAdapter::new(schema, stream::empty())));
        }
        let rows = probe()?.map(move |batch| {
            let timer = baseline.elapsed_compute().timer();
            let joined = batch.and_then(|batch| built.join_batch(&params, &batch));
            timer.done();
            joined.map(|batch| batch.record_output(&baseline))
        });
        let rows = rows.try_filter(|batch| std::future::ready(batch.num_rows() > 0));
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
    }
}

/// The first input for a partition of the second, and its rows by their keys.
async fn build(
    params: Arc<JoinParams>,
    partition: usize,
    context: Arc<TaskContext>,
    baseline: BaselineMetrics,
) -> Result<Arc<BuildSide>> {
    let reservation = MemoryConsumer::new("rows that are looked up").register(context.memory_pool());
    let mut stream = params.inputs[0].execute(params.build_partition(partition), context)?;
    let mut batches = vec![];
    while let Some(batch) = stream.next().await.transpose()? {
        reservation.try_grow(memory_size(batch.columns()))?;
        batches.push(batch);
    }
    let timer = baseline.elapsed_compute().timer();
    let rows = params.index_rows(batches, &reservation)?;
    timer.done();
    Ok(Arc::new(BuildSide { rows, _reservation: reservation }))
}

impl BuildSide {
    /// Rows of the second input, each with its partner.
    fn join_batch(&self, params: &JoinParams, batch: &RecordBatch) -> Result<RecordBatch> {
        let BuildRows::Indexed(first, unique) = &self.rows else {
            return internal_err!("rows that cannot be looked up");
        };
        let mut batch = batch.clone();
        let mut matches = unique.look_up(&params.evaluate_keys(1, &batch)?, batch.num_rows())?;
        if let Matches::Rows(rows) = &mut matches
            && rows.null_count() > 0
            && !params.keeps_unmatched
        {
            let has_match = is_not_null(rows)?;
            batch = filter_record_batch(&batch, &has_match)?;
            *rows = filter(rows, &has_match)?.as_primitive().clone();
        }
        let column = |(input, index): &(usize, usize)| match (input, &matches) {
            (0, Matches::Range(start)) => copy_range(first.column(*index), *start, batch.num_rows()),
            (0, Matches::Rows(rows)) => Ok(take(first.column(*index), rows, None)?),
            _ => Ok(Arc::clone(batch.column(*index))),
        };
        let columns = params.columns.iter().map(column).collect::<Result<_>>()?;
        let count = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        Ok(RecordBatch::try_new_with_options(params.join.schema(), columns, &count)?)
    }
}

/// Some values of an array, one after the other. They are copied if they are not all: a slice would count as the whole where memory is
/// accounted for.
fn copy_range(array: &ArrayRef, start: usize, length: usize) -> Result<ArrayRef> {
    if length == array.len() {
        return Ok(Arc::clone(array));
    }
    // Of one array alone `concat` makes a slice.
    Ok(concat(&[&array.slice(start, length), &array.slice(start, 0)])?)
}

impl JoinParams {
    /// The partition of the first input in which one of the second has its partners.
    fn build_partition(&self, partition: usize) -> usize {
        if self.by_partition { partition } else { 0 }
    }

    /// The keys of rows of an input.
    fn evaluate_keys(&self, input: usize, batch: &RecordBatch) -> Result<Vec<ArrayRef>> {
        self.keys[input].iter().map(|key| key.evaluate(batch)?.into_array(batch.num_rows())).collect()
    }

    /// Rows of the first input by their keys, if they can be looked up.
    fn index_rows(&self, mut batches: Vec<RecordBatch>, reservation: &MemoryReservation) -> Result<BuildRows> {
        if self.mode == Contractions::Fallback {
            return Ok(BuildRows::Unindexed(batches));
        }
        // While rows are put together they are there twice.
        let size = reservation.size();
        let copied = if batches.len() == 1 { 0 } else { size };
        reservation.try_grow(copied)?;
        let rows = match batches.as_slice() {
            [rows] => rows.clone(),
            _ => concat_batches(&self.inputs[0].schema(), &batches)?,
        };
        let unique = UniqueIndex::try_new(&self.evaluate_keys(0, &rows)?, rows.num_rows(), self.nulls)?;
        let rows = match unique {
            Some(unique) => {
                batches.clear();
                reservation.try_grow(unique.memory_size())?;
                BuildRows::Indexed(rows, unique)
            }
            None => BuildRows::Unindexed(batches),
        };
        reservation.shrink(copied);
        Ok(rows)
    }

    /// The join over the rows of both inputs, which are still to be given.
    fn fallback_plan(&self) -> Result<Arc<dyn ExecutionPlan>> {
        let inputs = self.inputs.iter().enumerate();
        let inputs = inputs.map(|(number, input)| Arc::new(InputExec::new(number, input)) as _).collect();
        with_children(&self.join, inputs)
    }

    /// The rows of a partition of each input, all others without rows.
    fn pad_partitions(&self, rows: [(usize, SendableRecordBatchStream); 2]) -> Vec<Streams> {
        let pad = |((partition, rows), input): ((usize, SendableRecordBatchStream), &Arc<dyn ExecutionPlan>)| {
            let mut rows = Some(rows);
            let others = 0..input.output_partitioning().partition_count();
            let streams = others.map(|number| match rows.take_if(|_| number == partition) {
                Some(rows) => rows,
                None => Box::pin(RecordBatchStreamAdapter::new(input.schema(), stream::empty())) as _,
            });
            streams.collect()
        };
        rows.into_iter().zip(&self.inputs).map(pad).collect()
    }
}
