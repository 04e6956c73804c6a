//! Projections that are executed again and again.

use arrow::datatypes::SchemaRef;
use datafusion_common::config::ConfigOptions;
use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{Result, internal_err};
use datafusion_execution::{SendableRecordBatchStream, TaskContext};
use datafusion_physical_expr::expressions::Column;
use datafusion_physical_optimizer::PhysicalOptimizerRule;
use datafusion_physical_plan::projection::ProjectionExec;
use datafusion_physical_plan::stream::RecordBatchStreamAdapter;
use datafusion_physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PhysicalExpr, PlanProperties};
use futures::StreamExt;
use std::fmt;
use std::sync::Arc;

use super::batch::batch_of;
use crate::version::without_expressions;

/// Returns whether expressions are the first columns of their input, in order. DataFusion passes a required order on to
/// the input of a node without translating columns, which is right only for these.
pub fn are_in_place<'e>(exprs: impl Iterator<Item = &'e Arc<dyn PhysicalExpr>>) -> bool {
    let mut placed = (0..).zip(exprs);
    placed.all(|(place, expr)| expr.downcast_ref::<Column>().is_some_and(|column| column.index() == place))
}

/// A [`ProjectionExec`] without metrics.
///
/// `ProjectionExec` formats each of its expressions whenever it is executed, as the name of a metric. For an iteration
/// of few rows, that takes longer than evaluating them.
#[derive(Debug)]
struct IteratedProjectionExec {
    projection: Arc<dyn ExecutionPlan>,
    input: Arc<dyn ExecutionPlan>,
    exprs: Arc<[Arc<dyn PhysicalExpr>]>,
}

impl IteratedProjectionExec {
    /// Converts a projection of DataFusion.
    fn from_projection(projection: &ProjectionExec, node: &Arc<dyn ExecutionPlan>) -> Self {
        let exprs = projection.expr().iter().map(|expr| Arc::clone(&expr.expr)).collect();
        Self { projection: Arc::clone(node), input: Arc::clone(projection.input()), exprs }
    }
}

impl DisplayAs for IteratedProjectionExec {
    fn fmt_as(&self, t: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        self.projection.fmt_as(t, f)
    }
}

impl ExecutionPlan for IteratedProjectionExec {
    fn name(&self) -> &str {
        "IteratedProjectionExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.projection.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    without_expressions!();

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![are_in_place(self.exprs.iter())]
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        let Ok([input]) = <[_; 1]>::try_from(children) else {
            return internal_err!("IteratedProjectionExec has one input");
        };
        let projection = match Arc::ptr_eq(input.properties(), self.input.properties()) {
            true => Arc::clone(&self.projection),
            false => Arc::clone(&self.projection).map_children(|_| Ok(Transformed::yes(Arc::clone(&input))))?.data,
        };
        Ok(Arc::new(Self { projection, input, exprs: Arc::clone(&self.exprs) }))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let (exprs, schema): (_, SchemaRef) = (Arc::clone(&self.exprs), self.schema());
        let named = Arc::clone(&schema);
        let rows = self.input.execute(partition, context)?.map(move |batch| {
            let batch = batch?;
            let count = batch.num_rows();
            let columns = exprs.iter().map(|expr| expr.evaluate(&batch)?.into_array(count));
            batch_of(&named, columns.collect::<Result<_>>()?, count)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
    }
}

/// The rule that replaces projections by projections without metrics.
#[derive(Debug)]
pub struct WithoutMetrics;

impl PhysicalOptimizerRule for WithoutMetrics {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let plan = plan.transform_up(|node| {
            let projected =
                node.downcast_ref::<ProjectionExec>().map(|own| IteratedProjectionExec::from_projection(own, &node));
            Ok(match projected {
                Some(projected) => Transformed::yes(Arc::new(projected) as Arc<dyn ExecutionPlan>),
                None => Transformed::no(node),
            })
        })?;
        Ok(plan.data)
    }

    fn name(&self) -> &str {
        "unmeasured"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
