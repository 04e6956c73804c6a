//! Plans with nodes of this project, which run in this library over the tables of the host.
//!
//! A relation that several places read is computed by a node that knows the execution it is of, which no handle of a plan carries. So such
//! a plan runs here as a whole. What it reads runs in the host, with its files and its memory pool.

use async_trait::async_trait;
use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::catalog::default_table_source::provider_as_source;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DFSchema, Result};
use datafusion::execution::context::SessionState;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, TableType};
use datafusion::physical_expr::projection::ProjectionExprs;
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties};
use futures::StreamExt;
use std::fmt;
use std::sync::Arc;

use crate::capture::Captured;

/// A physical plan that runs here, of one partition: its relations are computed once for each execution, and an execution of a host
/// begins anew with each partition.
///
/// # Errors
/// If it cannot be planned.
pub async fn planned(plan: &LogicalPlan, state: &SessionState) -> Result<Arc<dyn ExecutionPlan>> {
    let planned = state.query_planner().create_physical_plan(plan, state).await?;
    Ok(match planned.output_partitioning().partition_count() {
        1 => planned,
        _ => Arc::new(CoalescePartitionsExec::new(planned)),
    })
}

/// A plan with the columns that the statement has declared: `CREATE TABLE ... AS` takes no column that may be NULL for one that may not.
pub fn declared(plan: Arc<dyn ExecutionPlan>, schema: &DFSchema) -> Arc<dyn ExecutionPlan> {
    let planned = plan.schema();
    if schema.as_arrow().contains(&planned) || schema.fields().len() != planned.fields().len() {
        return plan;
    }
    let fields = schema
        .fields()
        .iter()
        .zip(planned.fields())
        .map(|(declared, field)| Field::clone(field).with_nullable(declared.is_nullable() && field.is_nullable()));
    let schema = Arc::new(Schema::new_with_metadata(fields.collect::<Vec<_>>(), planned.metadata().clone()));
    let equal = EquivalenceProperties::new(Arc::clone(&schema));
    let properties = PlanProperties::clone(plan.properties()).with_eq_properties(equal);
    Arc::new(Declared { plan, schema, properties: Arc::new(properties) })
}

/// The rows of a plan under another schema, with other promises about NULL.
#[derive(Debug)]
struct Declared {
    plan: Arc<dyn ExecutionPlan>,
    schema: SchemaRef,
    properties: Arc<PlanProperties>,
}

impl DisplayAs for Declared {
    fn fmt_as(&self, _t: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "Declared")
    }
}

impl ExecutionPlan for Declared {
    fn name(&self) -> &str {
        "Declared"
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
        let rows = self.plan.execute(partition, context)?.map(move |batch| {
            let batch = batch?;
            let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
            Ok(RecordBatch::try_new_with_options(Arc::clone(&schema), batch.columns().to_vec(), &options)?)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), rows)))
    }
}

/// The rows of a plan as a table, which a host or EXPLAIN reads. To a host the plan is a leaf: it does not know what the nodes below
/// demand of their inputs, and would rewrite them.
///
/// # Errors
/// If two of its columns have the same name.
pub fn table(plan: Arc<dyn ExecutionPlan>, is_leaf: bool) -> Result<LogicalPlan> {
    let plan = if is_leaf { Arc::new(Captured(plan)) } else { plan };
    LogicalPlanBuilder::scan("∂rows", provider_as_source(Arc::new(Rows(plan))), None)?.build()
}

/// The table.
#[derive(Debug)]
struct Rows(Arc<dyn ExecutionPlan>);

#[async_trait]
impl TableProvider for Rows {
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
