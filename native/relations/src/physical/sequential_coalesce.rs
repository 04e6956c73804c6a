//! Makes plans deterministic: they give the same rows in the same order each time.

use arrow::datatypes::SchemaRef;
use datafusion_common::config::ConfigOptions;
use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{Result, internal_err};
use datafusion_execution::{SendableRecordBatchStream, TaskContext};
use datafusion_physical_expr::EquivalenceProperties;
use datafusion_physical_optimizer::PhysicalOptimizerRule;
use datafusion_physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion_physical_plan::limit::GlobalLimitExec;
use datafusion_physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion_physical_plan::stream::RecordBatchStreamAdapter;
use datafusion_physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, Partitioning, PlanProperties,
};
use futures::{StreamExt, TryStreamExt, stream};
use std::fmt;
use std::sync::Arc;

use crate::version::without_expressions;

/// Reads the partitions of its input one after the other.
///
/// [`CoalescePartitionsExec`] merges them as they arrive, in a different order each time, so a sum over them may differ
/// in its last digits.
#[derive(Debug)]
pub struct SequentialCoalesceExec {
    input: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
}

impl SequentialCoalesceExec {
    /// Creates the node over an input.
    pub fn new(input: Arc<dyn ExecutionPlan>) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(input.schema()),
            Partitioning::UnknownPartitioning(1),
            input.pipeline_behavior(),
            input.boundedness(),
        );
        Self { input, properties: Arc::new(properties) }
    }
}

impl DisplayAs for SequentialCoalesceExec {
    fn fmt_as(&self, _t: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "SequentialCoalesceExec")
    }
}

impl ExecutionPlan for SequentialCoalesceExec {
    fn name(&self) -> &str {
        "SequentialCoalesceExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    without_expressions!();

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        let Ok([input]) = <[_; 1]>::try_from(children) else {
            return internal_err!("SequentialCoalesceExec has one input");
        };
        Ok(Arc::new(Self::new(input)))
    }

    fn execute(&self, _partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let (input, schema): (_, SchemaRef) = (Arc::clone(&self.input), self.schema());
        let partitions = 0..input.output_partitioning().partition_count();
        let rows = stream::iter(partitions).map(move |partition| input.execute(partition, Arc::clone(&context)));
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows.try_flatten())))
    }
}

/// The rule that reads partitions one after the other, and merges rows that are equal in an order in the order of their
/// partitions.
#[derive(Debug)]
pub struct PreserveOrder;

impl PhysicalOptimizerRule for PreserveOrder {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let plan = plan.transform_up(|node| {
            if let Some(coalescing) = node.downcast_ref::<CoalescePartitionsExec>() {
                let rows: Arc<dyn ExecutionPlan> =
                    Arc::new(SequentialCoalesceExec::new(Arc::clone(coalescing.input())));
                return Ok(Transformed::yes(match coalescing.fetch() {
                    Some(fetch) => Arc::new(GlobalLimitExec::new(rows, 0, Some(fetch))),
                    None => rows,
                }));
            }
            if let Some(merging) = node.downcast_ref::<SortPreservingMergeExec>() {
                return Ok(Transformed::yes(Arc::new(merging.clone().with_round_robin_repartition(false))));
            }
            Ok(Transformed::no(node))
        })?;
        Ok(match plan.data.output_partitioning().partition_count() {
            1 => plan.data,
            _ => Arc::new(SequentialCoalesceExec::new(plan.data)),
        })
    }

    fn name(&self) -> &str {
        "in_order"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
