//! Executes the adjoint of a recursive query, from its last iteration to the first.

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion_common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion_common::{DataFusionError, Result, internal_datafusion_err, internal_err};
use datafusion_execution::memory_pool::MemoryConsumer;
use datafusion_execution::{SendableRecordBatchStream, TaskContext};
use datafusion_physical_expr::EquivalenceProperties;
use datafusion_physical_plan::execution_plan::{Boundedness, EmissionType, collect_partitioned};
use datafusion_physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet, Time};
use datafusion_physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties};
use futures::stream;
use std::fmt;
use std::sync::Arc;
use xql_contraction::flatten_stream;

use super::batch_scan::Id;
use super::fixed_point::FixedPoint;
use super::recursive_tape::RecursiveTapeExec;
use super::shared_scan::SharedScanExec;
use super::sweep::{IterationSweep, Outside};
use crate::version::without_expressions;

/// Propagates the cotangents of the rows of all iterations of a recursive query back to what the iterations read.
///
/// Its inputs are the rows of the iterations, as a shared relation that [`RecursiveTapeExec`] computes; the cotangents that these rows have
/// from outside, with their numbers; and what an iteration contributes, for cotangents of its rows that are given under an id. That
/// has first the number of what is contributed to, and then the number of the row of it: [`BEFORE`](super::sweep::BEFORE) are the rows of the iteration
/// before. It gives the sums of the contributions to all others. [`FIRST`](super::sweep::FIRST) are the first rows of the recursive query.
#[derive(Debug)]
pub struct AdjointExec {
    name: String,
    incoming: (Id, SchemaRef),
    inputs: [Arc<dyn ExecutionPlan>; 3],
    fixed_point: Option<FixedPoint>,
    metrics: ExecutionPlanMetricsSet,
    properties: Arc<PlanProperties>,
}

impl AdjointExec {
    /// Creates the contributions, under the names of a schema. The cotangents of the rows of an iteration are given under an
    /// id, with columns of their own.
    pub fn new(
        name: impl Into<String>,
        incoming: (Id, SchemaRef),
        inputs: [Arc<dyn ExecutionPlan>; 3],
        schema: SchemaRef,
    ) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Final,
            Boundedness::Bounded,
        );
        let (metrics, properties) = (ExecutionPlanMetricsSet::new(), Arc::new(properties));
        Self { name: name.into(), incoming, inputs, fixed_point: None, metrics, properties }
    }

    /// Returns the same at a fixed point, if there is one: through the last iteration alone, until the cotangents have converged.
    pub fn at(self, fixed_point: Option<FixedPoint>) -> Self {
        Self { fixed_point, ..self }
    }
}

impl DisplayAs for AdjointExec {
    fn fmt_as(&self, _t: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "AdjointExec: {}", self.name)?;
        let tolerance = self.fixed_point.as_ref().map(|fixed| fixed.tolerance);
        tolerance.map_or(Ok(()), |tolerance| write!(f, ", fixed point within {tolerance:e}"))
    }
}

impl ExecutionPlan for AdjointExec {
    fn name(&self) -> &str {
        "AdjointExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.inputs.iter().chain(self.fixed_point.as_ref().map(|fixed| &fixed.step)).collect()
    }

    without_expressions!();

    fn with_new_children(self: Arc<Self>, mut children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        let mut fixed_point = self.fixed_point.clone();
        if let (Some(fixed), Some(step)) = (&mut fixed_point, children.pop_if(|_| self.fixed_point.is_some())) {
            fixed.step = step;
        }
        let Ok(inputs) = children.try_into() else { return internal_err!("AdjointExec has lost an input") };
        let (metrics, properties) = (self.metrics.clone(), Arc::clone(&self.properties));
        let (name, incoming) = (self.name.clone(), self.incoming.clone());
        Ok(Arc::new(Self { name, incoming, inputs, fixed_point, metrics, properties }))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let [tape, outside, step] = self.inputs.clone();
        let consumer = MemoryConsumer::new(format!("adjoint of {}", self.name));
        let sweep = IterationSweep {
            name: self.name.clone(),
            step,
            incoming: self.incoming.clone(),
            schema: self.schema(),
            reservation: consumer.register(context.memory_pool()),
            computed: MetricBuilder::new(&self.metrics).counter("iterations_computed_again", partition),
            turns: MetricBuilder::new(&self.metrics).counter("turns", partition),
            context,
        };
        let (metrics, fixed_point) = (BaselineMetrics::new(&self.metrics, partition), self.fixed_point.clone());
        let rows = async move {
            let rows = run(sweep, fixed_point, [tape, outside], metrics.elapsed_compute()).await?;
            metrics.record_output(rows.iter().map(RecordBatch::num_rows).sum());
            Ok::<_, DataFusionError>(stream::iter(rows.into_iter().map(Ok)))
        };
        Ok(flatten_stream(self.schema(), rows))
    }
}

/// Returns the sums of all contributions.
async fn run(
    sweep: IterationSweep,
    fixed_point: Option<FixedPoint>,
    inputs: [Arc<dyn ExecutionPlan>; 2],
    elapsed: &Time,
) -> Result<Vec<RecordBatch>> {
    let [tape, outside] = inputs;
    let missing = || internal_datafusion_err!("an adjoint has no iterations");
    let computed = reader(&tape)?.ok_or_else(missing)?.computed(&sweep.context).await?;
    let tape = computed.plan.as_ref().and_then(|plan| plan.downcast_ref::<RecursiveTapeExec>()).ok_or_else(missing)?;
    let tape = tape.tape()?;
    let outside = Outside::try_new(collect_partitioned(outside, Arc::clone(&sweep.context)).await?.concat())?;
    // What an iteration executes measures nothing itself.
    let _timer = elapsed.timer();
    let totals = match &fixed_point {
        Some(fixed) => fixed.sums(&sweep, tape, outside).await?,
        None => sweep.through_all(tape, outside).await?,
    };
    let rows = totals.iter().zip(0_u64..);
    rows.map(|(total, to)| total.batch(&sweep.schema, Some(to), None)).collect()
}

/// Returns the reader of the rows of all iterations, below what an optimizer has put above it.
fn reader(plan: &Arc<dyn ExecutionPlan>) -> Result<Option<SharedScanExec>> {
    let mut found = None;
    plan.apply(|node| {
        found = node.downcast_ref::<SharedScanExec>().cloned();
        Ok(if found.is_some() { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}
