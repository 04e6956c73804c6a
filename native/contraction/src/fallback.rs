//! The fallback of an operator: DataFusion's own plan over the rows that have been read so far and those that have not.

use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{Result, Statistics, internal_err};
use datafusion_execution::{SendableRecordBatchStream, TaskContext};
use datafusion_physical_expr::EquivalenceProperties;
use datafusion_physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion_physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion_physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricBuilder, RecordOutput};
use datafusion_physical_plan::stream::RecordBatchStreamAdapter;
use datafusion_physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, Partitioning, PlanProperties,
};
use futures::StreamExt;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::version::{statistics, without_expressions};

/// The rows of an input, one stream per partition.
pub type Streams = Vec<SendableRecordBatchStream>;

/// A leaf that is bound to the rows of an input when a fallback plan is executed.
#[derive(Clone)]
pub struct InputExec {
    number: usize,
    statistics: Option<Arc<Statistics>>,
    properties: Arc<PlanProperties>,
    streams: Arc<Mutex<Vec<Option<SendableRecordBatchStream>>>>,
}

impl InputExec {
    /// Creates the leaf of the input of this number, with the schema, partitions and statistics of a plan.
    pub fn new(number: usize, plan: &Arc<dyn ExecutionPlan>) -> Self {
        let statistics = statistics(plan, None).ok();
        Self { number, statistics, properties: Arc::clone(plan.properties()), streams: Arc::default() }
    }

    fn with_streams(&self, streams: Streams) -> Self {
        let streams = streams.into_iter().map(Some).collect();
        Self { streams: Arc::new(Mutex::new(streams)), ..self.clone() }
    }
}

/// Replaces the children of a node.
pub fn with_children(
    plan: &Arc<dyn ExecutionPlan>,
    children: Vec<Arc<dyn ExecutionPlan>>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let mut children = children.into_iter();
    let plan = Arc::clone(plan).map_children(|child| Ok(Transformed::yes(children.next().unwrap_or(child))))?;
    Ok(plan.data)
}

/// Resets a plan and binds its inputs to streams.
fn bind_inputs(plan: &Arc<dyn ExecutionPlan>, inputs: Vec<Streams>) -> Result<Arc<dyn ExecutionPlan>> {
    let mut inputs: Vec<_> = inputs.into_iter().map(Some).collect();
    let bound = Arc::clone(plan).transform_up(|node| {
        let Some(input) = node.downcast_ref::<InputExec>() else { return node.reset_state().map(Transformed::yes) };
        match inputs.get_mut(input.number).and_then(Option::take) {
            Some(streams) => Ok(Transformed::yes(Arc::new(input.with_streams(streams)) as _)),
            None => internal_err!("input {} is read twice", input.number),
        }
    })?;
    Ok(bound.data)
}

/// Executes a fallback plan over streams, in one partition.
///
/// # Errors
/// If the plan cannot be rebuilt or executed.
pub fn execute_fallback(
    plan: &Arc<dyn ExecutionPlan>,
    inputs: Vec<Streams>,
    context: Arc<TaskContext>,
    metrics: &ExecutionPlanMetricsSet,
    baseline: BaselineMetrics,
) -> Result<SendableRecordBatchStream> {
    MetricBuilder::new(metrics).global_counter("fallback").add(1);
    let mut plan = bind_inputs(plan, inputs)?;
    if plan.output_partitioning().partition_count() > 1 {
        plan = Arc::new(CoalescePartitionsExec::new(plan));
    }
    let schema = plan.schema();
    let rows = plan.execute(0, context)?.map(move |batch| batch.record_output(&baseline));
    Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
}

/// Returns the properties of an operator in one partition that has this fallback plan.
pub fn fallback_properties(plan: &Arc<dyn ExecutionPlan>) -> Arc<PlanProperties> {
    Arc::new(PlanProperties::new(
        EquivalenceProperties::new(plan.schema()),
        Partitioning::UnknownPartitioning(1),
        EmissionType::Final,
        Boundedness::Bounded,
    ))
}

impl fmt::Debug for InputExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InputExec").field("number", &self.number).finish_non_exhaustive()
    }
}

impl DisplayAs for InputExec {
    fn fmt_as(&self, _t: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "InputExec: {}", self.number)
    }
}

impl ExecutionPlan for InputExec {
    fn name(&self) -> &str {
        "InputExec"
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

    fn partition_statistics(&self, _partition: Option<usize>) -> Result<Arc<Statistics>> {
        match &self.statistics {
            Some(statistics) => Ok(Arc::new(statistics.as_ref().clone().to_inexact())),
            None => Ok(Arc::new(Statistics::new_unknown(&self.schema()))),
        }
    }

    fn execute(&self, partition: usize, _context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        match streams.get_mut(partition).and_then(Option::take) {
            Some(stream) => Ok(stream),
            None => internal_err!("input {} has no rows to give in partition {partition}", self.number),
        }
    }
}
