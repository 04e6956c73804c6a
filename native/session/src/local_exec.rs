//! Physical plans with nodes of this project, which run in this library over tables of the host.
//!
//! A common subplan is computed by a node that knows its execution, which no handle of a plan carries. So such a plan runs in this library
//! as a whole. Its scans run in the host, with the host's files and its memory pool, which also accounts for what runs here.

use async_trait::async_trait;
use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::catalog::default_table_source::provider_as_source;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DFSchema, Result};
use datafusion::execution::context::SessionState;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, TableType};
use datafusion::physical_expr::projection::ProjectionExprs;
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties};
use futures::StreamExt;
use futures::stream::poll_fn;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use xql_guard::guard;

use crate::plan_handle::PlanHandleExec;

/// Plans a logical plan for this library, in one partition: common subplans are computed once per execution, and the host starts an
/// execution for each partition. The result has the nullability that a statement has declared, since `CREATE TABLE ... AS` takes no
/// nullable column for one that is not.
///
/// # Errors
/// If it cannot be planned.
pub async fn plan_locally(
    plan: &LogicalPlan,
    state: &SessionState,
    declared: Option<&DFSchema>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let plan = state.query_planner().create_physical_plan(plan, state).await?;
    let plan = match plan.output_partitioning().partition_count() {
        1 => plan,
        _ => Arc::new(CoalescePartitionsExec::new(plan)),
    };
    let schema = declared.map_or_else(|| plan.schema(), |declared| declare_nullability(plan.schema(), declared));
    let equal = EquivalenceProperties::new(Arc::clone(&schema));
    let properties = PlanProperties::clone(plan.properties()).with_eq_properties(equal);
    let (properties, runtime, is_executed) =
        (Arc::new(properties), Arc::clone(state.runtime_env()), AtomicBool::new(false));
    Ok(Arc::new(LocalExec { plan, schema, properties, runtime, is_executed }))
}

/// Applies the declared nullability to the columns of a plan.
fn declare_nullability(planned: SchemaRef, declared: &DFSchema) -> SchemaRef {
    if declared.as_arrow().contains(&planned) || declared.fields().len() != planned.fields().len() {
        return planned;
    }
    let fields = declared
        .fields()
        .iter()
        .zip(planned.fields())
        .map(|(declared, field)| Field::clone(field).with_nullable(declared.is_nullable() && field.is_nullable()));
    Arc::new(Schema::new_with_metadata(fields.collect::<Vec<_>>(), planned.metadata().clone()))
}

/// The root of a plan that runs in this library, as the host sees it. A panic becomes an error, and a second execution resets the plan.
#[derive(Debug)]
struct LocalExec {
    plan: Arc<dyn ExecutionPlan>,
    schema: SchemaRef,
    properties: Arc<PlanProperties>,
    /// The runtime of the plan, with its memory pool.
    runtime: Arc<RuntimeEnv>,
    is_executed: AtomicBool,
}

impl DisplayAs for LocalExec {
    fn fmt_as(&self, _t: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "LocalExec")
    }
}

impl ExecutionPlan for LocalExec {
    fn name(&self) -> &str {
        "LocalExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![]
    }

    fn with_new_children(self: Arc<Self>, _: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn for<'a> FnMut(&'a Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let schema = Arc::clone(&self.schema);
        let mut rows = guard(EXECUTING, || {
            let plan = Arc::clone(&self.plan);
            let plan = if self.is_executed.swap(true, Ordering::Relaxed) { reset_plan_states(plan)? } else { plan };
            // The context of the host has its settings, and a runtime of no session.
            let settings = context.session_config().clone();
            let context = TaskContext::default().with_session_config(settings).with_runtime(Arc::clone(&self.runtime));
            plan.execute(partition, Arc::new(context))
        })?;
        let rows = poll_fn(move |context| {
            let polled = guard(EXECUTING, || Ok(rows.poll_next_unpin(context)));
            polled.unwrap_or_else(|error| Poll::Ready(Some(Err(error)))).map_ok(|batch| {
                let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
                Ok(RecordBatch::try_new_with_options(Arc::clone(&schema), batch.columns().to_vec(), &options)?)
            })
        });
        let rows = rows.map(|batch| batch.and_then(|batch| batch));
        Ok(Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), rows)))
    }
}

const EXECUTING: &str = "running a statement";

/// Builds a scan of a plan's rows, for the host or EXPLAIN. For the host the plan is a leaf: the host does not know the requirements of
/// nodes below, and would rewrite them.
///
/// # Errors
/// If two of its columns have the same name.
pub fn scan_plan(plan: Arc<dyn ExecutionPlan>, is_leaf: bool) -> Result<LogicalPlan> {
    let plan = if is_leaf { Arc::new(PlanHandleExec(plan)) } else { plan };
    LogicalPlanBuilder::scan("∂rows", provider_as_source(Arc::new(PlanTable(plan))), None)?.build()
}

/// A plan as a table.
#[derive(Debug)]
struct PlanTable(Arc<dyn ExecutionPlan>);

#[async_trait]
impl TableProvider for PlanTable {
    fn schema(&self) -> SchemaRef {
        self.0.schema()
    }

    fn table_type(&self) -> TableType {
        TableType::Temporary
    }

    async fn scan(
        &self,
        _session: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Some(columns) = projection else { return Ok(Arc::clone(&self.0)) };
        let columns = ProjectionExprs::from_indices(columns, &self.0.schema());
        Ok(Arc::new(ProjectionExec::try_new(columns.iter().cloned(), Arc::clone(&self.0))?))
    }
}
