//! Scans of a shared relation: the first reader of an execution computes the rows, and the others wait for them.

use arrow::datatypes::SchemaRef;
use datafusion_common::stats::Precision;
use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_common::{ColumnStatistics, DataFusionError, Result, Statistics, internal_err};
use datafusion_execution::memory_pool::MemoryConsumer;
use datafusion_execution::{SendableRecordBatchStream, TaskContext};
use datafusion_physical_expr::EquivalenceProperties;
use datafusion_physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion_physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion_physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet, RecordOutput};
use datafusion_physical_plan::projection::ProjectionExec;
use datafusion_physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, Partitioning, PlanProperties, displayable,
};
use futures::future::BoxFuture;
use futures::{FutureExt, TryFutureExt};
use std::any::Any;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use xql_contraction::flatten_stream;

use super::batch::projected;
use super::batch_scan::{BatchScanExec, BindInputs, Id};
use super::lock::locked;
use super::materialize::{Computation, Costs, Layout, Materialized, RetentionPolicy};
use super::projection_registry::ProjectionRegistry;
use crate::version::{statistics, without_expressions};

/// The state that the readers of a relation share.
#[derive(Debug)]
pub struct Shared {
    name: String,
    layout: Layout,
    scope: Scope,
    partitions: usize,
    plan: Mutex<Plan>,
    rows: Mutex<Execution>,
    /// The statistics of all rows, and of partitions. They are cached because optimizer rules request them for each
    /// reader, and computing them requests the statistics of all relations below.
    statistics: Mutex<HashMap<Option<usize>, Arc<Statistics>>>,
    costs: Costs,
    metrics: ExecutionPlanMetricsSet,
}

/// The identity of a relation, and the frame to which it is bound.
#[derive(Debug, Clone)]
struct Scope {
    id: Id,
    /// The frame to which the plan is bound, if it reads input rows.
    frame: Option<Weak<dyn BindInputs>>,
    /// The identifiers of the input rows that it reads.
    reads: OnceLock<Vec<Id>>,
    /// The expressions that readers evaluate over the rows, in all frames.
    projections: Arc<ProjectionRegistry>,
}

/// The plan that computes the rows.
#[derive(Debug)]
struct Plan {
    node: Arc<dyn ExecutionPlan>,
    /// The error of assigning the work table of a recursive query to the plan.
    failed: Option<Arc<DataFusionError>>,
    /// The work tables that have been assigned to it. Every reader passes them on.
    states: Vec<Arc<dyn Any + Send + Sync>>,
}

/// The rows of one execution, or of one iteration of a recursive query.
#[derive(Debug, Default)]
struct Execution {
    /// The execution that they are of. Another one computes rows of its own.
    context: Weak<TaskContext>,
    computing: Option<Computing>,
}

/// The computation of the rows. Whichever reader asks for them drives it, and one that is dropped leaves it to the others.
type Computing = futures::future::Shared<BoxFuture<'static, Result<Arc<Materialized>, Arc<DataFusionError>>>>;

impl Shared {
    /// Creates the relation of this name with the columns of a schema, the last of which numbers the rows that the plan computes
    /// if it is `numbered`.
    pub fn new(name: String, schema: SchemaRef, numbered: bool, plan: Arc<dyn ExecutionPlan>) -> Self {
        let metrics = ExecutionPlanMetricsSet::new();
        Self {
            name,
            layout: Layout { schema, numbered, retention: RetentionPolicy::default() },
            scope: Scope { id: Id::next(), frame: None, reads: OnceLock::new(), projections: Arc::default() },
            partitions: plan.output_partitioning().partition_count(),
            plan: Mutex::new(Plan { node: plan, failed: None, states: vec![] }),
            rows: Mutex::default(),
            statistics: Mutex::default(),
            costs: Costs::new(&metrics),
            metrics,
        }
    }

    /// Sets the retention of the relation.
    pub fn with_retention(mut self, retention: RetentionPolicy) -> Self {
        self.layout.retention = retention;
        self
    }

    /// Returns the plan that computes the rows.
    pub fn plan(&self) -> Arc<dyn ExecutionPlan> {
        Arc::clone(&locked(&self.plan).node)
    }

    /// Returns the identifier, which the relation has in all frames.
    pub fn id(&self) -> Id {
        self.scope.id
    }

    /// Returns the expressions that readers evaluate over the rows.
    pub fn projections(&self) -> &ProjectionRegistry {
        &self.scope.projections
    }

    /// Returns the identifiers of the input rows from which it is computed.
    pub fn reads(&self) -> &[Id] {
        self.scope.reads.get_or_init(|| {
            let mut reads = vec![];
            let visited = self.plan().apply(|node| {
                if let Some(given) = node.downcast_ref::<BatchScanExec>() {
                    reads.push(given.id());
                } else if let Some(reader) = node.downcast_ref::<SharedScanExec>() {
                    reads.extend(reader.shared.reads());
                }
                Ok(TreeNodeRecursion::Continue)
            });
            debug_assert!(visited.is_ok(), "the closure never fails");
            reads.sort_unstable();
            reads.dedup();
            reads
        })
    }

    /// Returns the relation computed from the input rows of a frame. The caller keeps the frame alive.
    pub fn bound_to(&self, frame: Weak<dyn BindInputs>) -> Self {
        let retention = RetentionPolicy { no_measures: true, ..self.layout.retention };
        Self {
            name: self.name.clone(),
            layout: Layout { retention, ..self.layout.clone() },
            scope: Scope { frame: Some(frame), ..self.scope.clone() },
            partitions: self.partitions,
            plan: Mutex::new(Plan { node: self.plan(), failed: locked(&self.plan).failed.clone(), states: vec![] }),
            rows: Mutex::default(),
            statistics: Mutex::default(),
            costs: self.costs.clone(),
            metrics: self.metrics.clone(),
        }
    }

    fn statistics(&self, partition: Option<usize>) -> Result<Arc<Statistics>> {
        if let Some(known) = locked(&self.statistics).get(&partition) {
            return Ok(Arc::clone(known));
        }
        let plan = self.plan();
        let mut statistics = statistics(&plan, partition)?.as_ref().clone();
        if is_one_row(&plan) {
            statistics.num_rows = Precision::Exact(1);
            statistics.total_byte_size = Precision::Absent;
        }
        if self.layout.numbered {
            statistics.column_statistics.push(ColumnStatistics::new_unknown());
        }
        let statistics = Arc::new(statistics);
        locked(&self.statistics).insert(partition, Arc::clone(&statistics));
        Ok(statistics)
    }

    /// Assigns the work table of a recursive query to the plan. The outer plan cannot, since the scan of it is hidden
    /// here.
    fn assign(&self, state: &Arc<dyn Any + Send + Sync>) {
        {
            let states = &mut locked(&self.plan).states;
            if states.iter().any(|known| Arc::ptr_eq(known, state)) {
                return;
            }
            states.push(Arc::clone(state));
        }
        let assigned = self.plan().transform_down(|plan| {
            let assigned = plan.with_new_state(Arc::clone(state));
            Ok(assigned.map_or_else(|| Transformed::no(plan), Transformed::yes))
        });
        let mut plan = locked(&self.plan);
        match assigned {
            Ok(assigned) if assigned.transformed => plan.node = assigned.data,
            Ok(_) => {}
            // The caller cannot receive an error. It is returned when the plan is executed.
            Err(error) => plan.failed = Some(Arc::new(error)),
        }
    }

    /// Forgets the rows, for the next iteration of a recursive query, and those of the relations that they were computed from.
    fn forget(&self) {
        self.forget_unless(&mut HashSet::new());
    }

    /// Forgets them unless this has been done.
    fn forget_unless(&self, done: &mut HashSet<Id>) {
        let rows = std::mem::take(&mut *locked(&self.rows));
        // What has not been asked for has asked for nothing either, unless frames have asked for it in its place.
        let is_unasked = rows.context.strong_count() == 0 && self.reads().is_empty();
        if is_unasked || !done.insert(self.id()) {
            return;
        }
        let visited = self.plan().apply(|node| {
            if let Some(reader) = node.downcast_ref::<SharedScanExec>() {
                reader.shared.forget_unless(done);
            }
            Ok(TreeNodeRecursion::Continue)
        });
        debug_assert!(visited.is_ok(), "the closure never fails");
    }

    /// Returns the plan in its initial state.
    fn unexecuted(&self) -> Result<Arc<dyn ExecutionPlan>> {
        if let Some(frame) = &self.scope.frame {
            let Some(frame) = frame.upgrade() else {
                return internal_err!("{} is read after its iteration", self.name);
            };
            return frame.bound(self.plan());
        }
        // Joins and the like keep what they have computed, and this may be another execution or iteration. Other shared
        // relations keep it for the whole of one.
        let plan = self.plan().transform_up(|node| match node.downcast_ref::<SharedScanExec>() {
            Some(reader) => Ok(Transformed::yes(Arc::new(reader.executed()) as _)),
            None => node.reset_state().map(Transformed::yes),
        })?;
        Ok(plan.data)
    }

    fn rows_of(&self, context: &Arc<TaskContext>) -> Result<Computing> {
        let mut rows = locked(&self.rows);
        let is_same = std::ptr::eq(rows.context.as_ptr(), Arc::as_ptr(context));
        if let Some(computing) = rows.computing.as_ref().filter(|_| is_same) {
            return Ok(computing.clone());
        }
        if let Some(error) = &locked(&self.plan).failed {
            return Err(DataFusionError::Shared(Arc::clone(error)));
        }
        let plan = self.unexecuted()?;
        let consumer = MemoryConsumer::new(format!("shared relation {}", self.name));
        let computation = Computation {
            plan,
            layout: self.layout.clone(),
            reservation: consumer.register(context.memory_pool()),
            costs: self.costs.clone(),
            context: Arc::clone(context),
        };
        let computing = computation.run().map_err(Arc::new).boxed().shared();
        *rows = Execution { context: Arc::downgrade(context), computing: Some(computing.clone()) };
        Ok(computing)
    }

    /// Formats the plan as `EXPLAIN` shows it, with the metrics of its nodes if it has been executed.
    fn lines(&self) -> String {
        let computed = locked(&self.rows).computing.as_ref().and_then(|computing| computing.peek().cloned());
        let measured = computed.and_then(Result::ok).map(|computed| computed.measured.clone()).unwrap_or_default();
        let mut text = String::new();
        add_lines(self.plan().as_ref(), 0, &mut measured.into_iter(), &mut text);
        text
    }
}

/// Returns whether a plan has one row, as an aggregation without keys has. DataFusion estimates as many rows as the
/// aggregation reads if it has a single stage, and would pick the wrong build side for a cross join.
fn is_one_row(plan: &Arc<dyn ExecutionPlan>) -> bool {
    match (plan.downcast_ref::<AggregateExec>(), plan.children().as_slice()) {
        (Some(aggregate), _) => {
            *aggregate.mode() == AggregateMode::Single
                && aggregate.group_expr().is_empty()
                && aggregate.group_expr().is_single()
        }
        (None, [below]) => plan.is::<ProjectionExec>() && is_one_row(below),
        _ => false,
    }
}

/// Adds the lines of a node and of those below it, in the order in which their measures come.
fn add_lines(
    node: &dyn ExecutionPlan,
    depth: usize,
    measured: &mut impl Iterator<Item = Option<MetricsSet>>,
    text: &mut String,
) {
    let shown = displayable(node).one_line().to_string();
    for line in shown.lines() {
        text.push_str(&"  ".repeat(depth));
        text.push_str(line);
        text.push('\n');
    }
    if let Some(Some(metrics)) = measured.next() {
        let metrics = metrics.aggregate_by_name().sorted_for_display().timestamps_removed();
        text.truncate(text.trim_end().len());
        text.push_str(&format!(", metrics=[{metrics}]\n"));
    }
    for child in node.children() {
        add_lines(child.as_ref(), depth + 1, measured, text);
    }
}

/// A reader of a shared relation.
///
/// The plan of the relation is not a child of any reader, although `EXPLAIN` shows it below the first one. It is
/// planned and optimized already. As a child it would belong to one reader, but all readers share it:
///
/// - An optimizer that changes the number of its partitions for the one reader changes what the others have been planned with, and
///   one that takes the reader away takes the plan away.
/// - A recursive query hands its working table on to the scans that it finds, and refuses a second one. A relation that reads the
///   table is found in the place of its first reader, which may stand outside of the recursive term.
///
/// Its metrics are the rows that it has read and the time that this took. The first reader has those of computing, too:
/// `computed_rows`, `computing` as time that passed, and `held_bytes`. In the recursive term of a query they are those of all
/// iterations.
#[derive(Debug, Clone)]
pub struct SharedScanExec {
    shared: Arc<Shared>,
    projection: Vec<usize>,
    /// Whether it shows the plan of the relation, and what computing it has taken.
    shows_plan: bool,
    /// Whether it is in a plan that is executed, and not in the one that is shown. Nodes of DataFusion log their inputs
    /// when they start, and each would format the whole plan of the relation.
    is_executed: bool,
    metrics: ExecutionPlanMetricsSet,
    properties: Arc<PlanProperties>,
}

impl SharedScanExec {
    /// Creates a reader under the names of a schema, of these columns if not of all.
    pub fn new(
        shared: Arc<Shared>,
        schema: &SchemaRef,
        projection: Option<Vec<usize>>,
        shows_plan: bool,
    ) -> Result<Self> {
        let projection = projection.unwrap_or_else(|| (0..schema.fields().len()).collect());
        let schema = Arc::new(schema.project(&projection)?);
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(shared.partitions),
            EmissionType::Final,
            Boundedness::Bounded,
        );
        let metrics = ExecutionPlanMetricsSet::new();
        Ok(Self { shared, projection, shows_plan, is_executed: false, metrics, properties: Arc::new(properties) })
    }

    /// Returns the shared state of the relation.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Returns the columns of the relation that it reads.
    pub fn projection(&self) -> &[usize] {
        &self.projection
    }

    /// Creates the same reader of this relation, which has not measured anything yet.
    pub fn with_shared(&self, shared: Arc<Shared>) -> Self {
        Self { shared, ..self.executed() }
    }

    /// Returns the rows of all partitions, and what computed them.
    pub async fn computed(&self, context: &Arc<TaskContext>) -> Result<Arc<Materialized>> {
        let computing = self.shared.rows_of(context)?;
        computing.await.map_err(DataFusionError::Shared)
    }

    /// Returns the same reader in a plan that is executed.
    fn executed(&self) -> Self {
        Self { is_executed: true, ..self.measuring_anew() }
    }

    /// Returns the reader with new metrics. Otherwise it would keep the metrics of every iteration of a recursive
    /// query.
    fn measuring_anew(&self) -> Self {
        Self { metrics: ExecutionPlanMetricsSet::new(), ..self.clone() }
    }
}

impl DisplayAs for SharedScanExec {
    fn fmt_as(&self, _t: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        let names = self.shared.layout.schema.fields();
        let columns: Vec<_> = self.projection.iter().map(|column| names[*column].name().as_str()).collect();
        let verb = if self.shows_plan { "computes" } else { "reads" };
        write!(f, "SharedScanExec: {verb} {}, columns=[{}]", self.shared.name, columns.join(", "))?;
        if self.shows_plan && !self.is_executed {
            for line in self.shared.lines().lines() {
                write!(f, "\n{}| {line}", self.shared.name)?;
            }
            // What this node has measured is put behind its text, and is not that of the last node of the plan.
            if locked(&self.shared.rows).computing.is_some() {
                write!(f, "\n{} is read", self.shared.name)?;
            }
        }
        Ok(())
    }
}

impl ExecutionPlan for SharedScanExec {
    fn name(&self) -> &str {
        "SharedScanExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![]
    }

    without_expressions!();

    fn with_new_children(self: Arc<Self>, _children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        self.shared.forget();
        Ok(Arc::new(self.measuring_anew()))
    }

    fn with_new_state(&self, state: Arc<dyn Any + Send + Sync>) -> Option<Arc<dyn ExecutionPlan>> {
        // A recursive query refuses two readers of its working table, and takes every answer for one.
        self.shared.assign(&state);
        None
    }

    fn metrics(&self) -> Option<MetricsSet> {
        let mut metrics = self.metrics.clone_inner();
        if self.shows_plan {
            for metric in self.shared.metrics.clone_inner().iter() {
                metrics.push(Arc::clone(metric));
            }
        }
        Some(metrics)
    }

    fn partition_statistics(&self, partition: Option<usize>) -> Result<Arc<Statistics>> {
        let statistics = self.shared.statistics(partition)?;
        Ok(Arc::new(statistics.as_ref().clone().project(Some(&self.projection))))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        if partition >= self.shared.partitions {
            return internal_err!("{} has no partition {partition}", self.shared.name);
        }
        let computing = self.shared.rows_of(&context)?;
        let (projection, schema) = (self.projection.clone(), self.schema());
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let batches = async move {
            let computed = computing.await.map_err(DataFusionError::Shared)?;
            let count = computed.partitions[partition].len();
            let batches = (0..count).map(move |index| {
                let timer = metrics.elapsed_compute().timer();
                let batch = projected(&computed.partitions[partition][index], &projection, &schema)?;
                timer.done();
                Ok(batch.record_output(&metrics))
            });
            Ok::<_, DataFusionError>(futures::stream::iter(batches))
        };
        Ok(flatten_stream(self.schema(), batches))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{AsArray, Int64Array, RecordBatch};
    use arrow::datatypes::{DataType, Field, Schema, UInt64Type};
    use datafusion::datasource::memory::MemorySourceConfig;
    use datafusion::prelude::{SessionConfig, SessionContext};
    use datafusion_common::{assert_contains, plan_err};
    use datafusion_physical_expr::expressions::lit;
    use datafusion_physical_plan::collect;
    use datafusion_physical_plan::filter::FilterExec;

    /// Rows of two partitions, and a plan that computes them.
    fn plan() -> Result<Arc<dyn ExecutionPlan>> {
        let schema = Arc::new(Schema::new(vec![Field::new("x", DataType::Int64, false)]));
        let batch =
            |values: Vec<i64>| RecordBatch::try_new(Arc::clone(&schema), vec![Arc::new(Int64Array::from(values))]);
        let partitions = [vec![batch(vec![1, 2, 3])?], vec![batch(vec![4])?]];
        let rows = MemorySourceConfig::try_new_exec(&partitions, Arc::clone(&schema), None)?;
        Ok(Arc::new(FilterExec::try_new(lit(true), rows)?))
    }

    fn schema() -> SchemaRef {
        Arc::new(Schema::new(vec![Field::new("x", DataType::Int64, false), Field::new("row", DataType::UInt64, false)]))
    }

    fn readers(plan: Arc<dyn ExecutionPlan>) -> Result<[Arc<dyn ExecutionPlan>; 2]> {
        let shared = Arc::new(Shared::new("r".to_owned(), schema(), true, plan));
        let reader =
            |projection, shows_plan| SharedScanExec::new(Arc::clone(&shared), &schema(), projection, shows_plan);
        Ok([Arc::new(reader(None, true)?), Arc::new(reader(Some(vec![1]), false)?)])
    }

    fn value(plan: &Arc<dyn ExecutionPlan>, name: &str) -> Option<usize> {
        Some(plan.metrics()?.sum_by_name(name)?.as_usize())
    }

    fn read(plan: &Arc<dyn ExecutionPlan>) -> Option<usize> {
        plan.metrics()?.output_rows()
    }

    #[tokio::test]
    async fn the_first_reader_says_what_computing_has_taken() -> Result<()> {
        let [first, second] = readers(plan()?)?;
        let context = Arc::new(TaskContext::default());
        let batches = collect(Arc::clone(&second), Arc::clone(&context)).await?;
        let mut numbers: Vec<_> =
            batches.iter().flat_map(|batch| batch.column(0).as_primitive::<UInt64Type>().values().to_vec()).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, [0, 1, 2, 4]);
        collect(Arc::clone(&first), context).await?;
        assert_eq!([&first, &second].map(read), [Some(4); 2]);
        assert_eq!([&first, &second].map(|plan| value(plan, "computed_rows")), [Some(4), None]);
        assert!(value(&first, "computing") > Some(0) && value(&first, "held_bytes") > Some(0));
        let shown = |plan: &Arc<dyn ExecutionPlan>| displayable(plan.as_ref()).indent(false).to_string();
        assert_contains!(
            shown(&first),
            "SharedScanExec: computes r, columns=[x, row]\nr| FilterExec: true, metrics=[output_rows=4"
        );
        assert_contains!(shown(&first), "\nr|   DataSourceExec");
        assert!(shown(&first).ends_with("\nr is read\n"), "{}", shown(&first));
        assert_eq!(shown(&second), "SharedScanExec: reads r, columns=[row]\n");
        Ok(())
    }

    #[tokio::test]
    async fn an_aggregate_without_groups_has_one_row() -> Result<()> {
        let ctx = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(1));
        for (sql, expected) in [
            ("SELECT SUM(value) AS x FROM (VALUES (1), (2)) AS t (value)", Precision::Exact(1)),
            ("SELECT SUM(value) + 1 AS x FROM range(0, 100)", Precision::Exact(1)),
            ("SELECT SUM(value) AS x FROM (VALUES (1), (2)) AS t (value) GROUP BY value", Precision::Inexact(2)),
        ] {
            let plan = ctx.sql(sql).await?.create_physical_plan().await?;
            let schema = plan.schema();
            let shared = Arc::new(Shared::new("r".to_owned(), Arc::clone(&schema), false, plan));
            let reader: Arc<dyn ExecutionPlan> = Arc::new(SharedScanExec::new(shared, &schema, None, false)?);
            assert_eq!(statistics(&reader, None)?.num_rows, expected, "{sql}");
        }
        Ok(())
    }

    #[tokio::test]
    async fn another_execution_computes_the_rows_again() -> Result<()> {
        let [first, second] = readers(plan()?)?;
        let context = Arc::new(TaskContext::default());
        for plan in [&first, &second] {
            collect(Arc::clone(plan), Arc::clone(&context)).await?;
        }
        assert_eq!(value(&first, "computed_rows"), Some(4));
        collect(Arc::clone(&second), Arc::default()).await?;
        assert_eq!(value(&first, "computed_rows"), Some(8));
        // As for the next iteration of a recursive query.
        let next = Arc::clone(&second).reset_state()?;
        assert_eq!(read(&next), None);
        collect(next, context).await?;
        assert_eq!(value(&first, "computed_rows"), Some(12));
        Ok(())
    }

    /// A node that takes no state for the scan below it.
    #[derive(Debug)]
    struct Refusing(Arc<dyn ExecutionPlan>);

    impl DisplayAs for Refusing {
        fn fmt_as(&self, _t: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
            write!(f, "Refusing")
        }
    }

    impl ExecutionPlan for Refusing {
        fn name(&self) -> &str {
            "Refusing"
        }

        fn properties(&self) -> &Arc<PlanProperties> {
            self.0.properties()
        }

        fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
            vec![&self.0]
        }

        without_expressions!();

        fn with_new_children(self: Arc<Self>, _: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
            plan_err!("nothing is put below it")
        }

        fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
            self.0.execute(partition, context)
        }
    }

    /// A scan that takes any state.
    #[derive(Debug)]
    struct Taking(Arc<dyn ExecutionPlan>);

    impl DisplayAs for Taking {
        fn fmt_as(&self, _t: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
            write!(f, "Taking")
        }
    }

    impl ExecutionPlan for Taking {
        fn name(&self) -> &str {
            "Taking"
        }

        fn properties(&self) -> &Arc<PlanProperties> {
            self.0.properties()
        }

        fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
            vec![]
        }

        without_expressions!();

        fn with_new_children(self: Arc<Self>, _: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
            Ok(self)
        }

        fn with_new_state(&self, _state: Arc<dyn Any + Send + Sync>) -> Option<Arc<dyn ExecutionPlan>> {
            Some(Arc::new(Self(Arc::clone(&self.0))))
        }

        fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
            self.0.execute(partition, context)
        }
    }

    #[tokio::test]
    async fn a_working_table_that_could_not_be_assigned_is_an_error_of_the_execution() -> Result<()> {
        let [first, second] = readers(Arc::new(Refusing(Arc::new(Taking(plan()?)))))?;
        assert!(first.with_new_state(Arc::new(())).is_none());
        for plan in [first, second] {
            let error = collect(plan, Arc::default()).await.expect_err("the table is missing");
            assert_contains!(error.to_string(), "nothing is put below it");
        }
        Ok(())
    }
}
