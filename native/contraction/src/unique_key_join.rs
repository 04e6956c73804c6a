//! The operator that joins by unique integer keys.

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

use crate::batch_streams::{flatten_stream, merge_small_batches};
use crate::fallback::{InputExec, Streams, execute_fallback, with_children};
use crate::input_buffer::memory_size;
use crate::integers::can_convert;
use crate::option::Contractions;
use crate::unique_index::{Matches, UniqueIndex};
use crate::version::{delegate_distribution, feeds_dynamic_filter, statistics, without_expressions};

/// A hash join whose build side has unique integer keys: each probe row looks up one row in an array.
///
/// Joins by row number and by the keys of groups are of this kind. The columns of the probe side are not copied where each row has a match.
/// If two rows of the build side have the same keys, or the keys are sparse, DataFusion's join runs over both inputs.
#[derive(Debug)]
pub struct UniqueKeyJoinExec {
    params: Arc<JoinParams>,
    /// The build side, shared by the partitions of the probe side.
    shared: Option<Arc<OnceLock<BuildFuture>>>,
    metrics: ExecutionPlanMetricsSet,
}

/// The build side while it is read: once, and to its end even if one of those who await it is dropped.
type BuildFuture = Shared<BoxFuture<'static, Result<Arc<BuildSide>, Arc<DataFusionError>>>>;

/// The definition of the operator.
#[derive(Debug)]
struct JoinParams {
    /// DataFusion's join.
    join: Arc<dyn ExecutionPlan>,
    inputs: [Arc<dyn ExecutionPlan>; 2],
    /// The keys of both inputs.
    keys: [Vec<Arc<dyn PhysicalExpr>>; 2],
    /// Whether NULL equals NULL.
    nulls: bool,
    /// Whether the join keeps probe rows without a match.
    keeps_unmatched: bool,
    /// Whether both inputs are partitioned by the keys.
    by_partition: bool,
    /// The columns of the result, each by input and index.
    columns: Vec<(usize, usize)>,
    mode: Contractions,
}

/// The build side.
#[derive(Debug)]
struct BuildSide {
    rows: BuildRows,
    _reservation: MemoryReservation,
}

#[derive(Debug)]
enum BuildRows {
    /// All rows, and the index of their keys.
    Indexed(RecordBatch, UniqueIndex),
    /// The batches as they were read, if they have no unique index.
    Unindexed(Vec<RecordBatch>),
}

impl UniqueKeyJoinExec {
    /// Converts a hash join, if its types allow a lookup. Whether the keys are unique is known when it is executed.
    ///
    /// # Errors
    /// If a key is not a column of its input.
    pub fn from_hash_join(join: &Arc<dyn ExecutionPlan>, mode: Contractions) -> Result<Option<Self>> {
        let Some(node) = join.downcast_ref::<HashJoinExec>() else { return Ok(None) };
        let is_plain = node.filter().is_none() && !node.null_aware && node.fetch().is_none();
        // A scan may use the keys of the build side as a dynamic filter, which this operator does not provide.
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

/// Swaps the inputs of a left join, unless its build side is known to be smaller: only right joins are looked up. DataFusion does the same
/// if it knows the numbers of rows.
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
    // The build side of a join that is not partitioned has one partition.
    let is_divided = mode != PartitionMode::Partitioned && join.right().output_partitioning().partition_count() > 1;
    if is_smaller || is_divided {
        return Ok(None);
    }
    let on = join.on().iter().map(|(left, right)| (Arc::clone(right), Arc::clone(left))).collect();
    let [left, right] = [join.left(), join.right()].map(|input| input.schema().fields().len());
    let columns = join.projection.as_ref().map_or_else(|| (0..left + right).collect::<Vec<_>>(), |all| all.to_vec());
    let swap = |column: usize| if column < left { right + column } else { column - left };
    // `HashJoinExec::swap_inputs` refuses a join with a dynamic filter, even one that no scan uses.
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

    // The fallback plan may be part of a plan that is optimized again.
    delegate_distribution!(params.join);

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        self.params.join.benefits_from_input_partitioning()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        // DataFusion derives the order from the columns at the same positions of the input, which is wrong if columns are reordered.
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
        Ok(flatten_stream(self.schema(), execution.execute()))
    }
}

/// The execution of one partition.
struct JoinExecution {
    params: Arc<JoinParams>,
    shared: Option<Arc<OnceLock<BuildFuture>>>,
    partition: usize,
    context: Arc<TaskContext>,
    metrics: ExecutionPlanMetricsSet,
    baseline: BaselineMetrics,
}

impl JoinExecution {
    /// Joins by lookup, or executes the fallback plan.
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
        let rows = merge_small_batches(probe()?, context.session_config().batch_size()).map(move |batch| {
            let timer = baseline.elapsed_compute().timer();
            let joined = batch.and_then(|batch| built.join_batch(&params, &batch));
            timer.done();
            joined.map(|batch| batch.record_output(&baseline))
        });
        let rows = rows.try_filter(|batch| std::future::ready(batch.num_rows() > 0));
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
    }
}

/// Reads the build side of a partition and indexes it.
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
    /// Joins a batch of the probe side.
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

/// Copies a range of an array, unless it is the whole: a slice would count as the whole where memory is accounted for.
fn copy_range(array: &ArrayRef, start: usize, length: usize) -> Result<ArrayRef> {
    if length == array.len() {
        return Ok(Arc::clone(array));
    }
    // `concat` of one array returns a slice.
    Ok(concat(&[&array.slice(start, length), &array.slice(start, 0)])?)
}

impl JoinParams {
    /// Returns the partition of the build side that matches a partition of the probe side.
    fn build_partition(&self, partition: usize) -> usize {
        if self.by_partition { partition } else { 0 }
    }

    /// Evaluates the keys of an input.
    fn evaluate_keys(&self, input: usize, batch: &RecordBatch) -> Result<Vec<ArrayRef>> {
        self.keys[input].iter().map(|key| key.evaluate(batch)?.into_array(batch.num_rows())).collect()
    }

    /// Indexes the rows of the build side, if their keys are unique.
    fn index_rows(&self, mut batches: Vec<RecordBatch>, reservation: &MemoryReservation) -> Result<BuildRows> {
        if self.mode == Contractions::Fallback {
            return Ok(BuildRows::Unindexed(batches));
        }
        // While batches are concatenated, rows are in memory twice.
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

    /// Returns DataFusion's join over inputs that are still to be bound.
    fn fallback_plan(&self) -> Result<Arc<dyn ExecutionPlan>> {
        let inputs = self.inputs.iter().enumerate();
        let inputs = inputs.map(|(number, input)| Arc::new(InputExec::new(number, input)) as _).collect();
        with_children(&self.join, inputs)
    }

    /// Returns the streams of one partition of each input, with empty streams for all others.
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
