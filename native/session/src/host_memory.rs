//! Reservations in the memory pool of the host's session.
//!
//! No handle of `datafusion-ffi` exposes the memory pool of a session. But the host's own nodes reserve what they use. So the host executes
//! an aggregation whose accumulator, which is of this library, reports the size that is to be reserved. The input of the aggregation does
//! not end, so the host keeps the reservation until the execution is dropped.

use datafusion::arrow::array::{ArrayRef, AsArray, RecordBatch, UInt64Array};
use datafusion::arrow::datatypes::{DataType, Field, Schema, UInt64Type};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DataFusionError, Result, ScalarValue, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{
    Accumulator, AccumulatorFactoryFunction, Expr, LogicalPlan, LogicalPlanBuilder, Volatility, col, create_udaf,
};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use datafusion_ffi::execution_plan::{FFI_ExecutionPlan, ForeignExecutionPlan};
use datafusion_ffi::ffi_option::FFI_Result;
use futures::stream::{once, pending};
use futures::{StreamExt, future};
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::host_exec::HostContext;
use crate::local_exec::scan_plan;

/// An aggregation of the host, executed in a session to reserve memory.
pub struct HostMemory {
    node: FFI_ExecutionPlan,
    host: Arc<HostContext>,
}

/// Memory that is reserved until this is dropped.
pub struct HostReservation {
    /// The size in bytes.
    pub size: usize,
    _execution: SendableRecordBatchStream,
}

/// Builds the logical plan of the aggregation.
///
/// # Errors
/// If DataFusion cannot build it.
pub fn reservation_plan() -> Result<LogicalPlan> {
    let factory: AccumulatorFactoryFunction = Arc::new(|_| Ok(Box::<ReservationAccumulator>::default()));
    let (bytes, state) = (DataType::UInt64, Arc::new(vec![DataType::UInt64]));
    let reserve = create_udaf("∂held", vec![bytes.clone()], Arc::new(bytes), Volatility::Volatile, factory, state);
    let rows = scan_plan(Arc::new(ReservationSource::new(0)), true)?;
    LogicalPlanBuilder::from(rows).aggregate(Vec::<Expr>::new(), [reserve.call(vec![col(BYTES)])])?.build()
}

impl HostMemory {
    /// Finds the aggregation in the host's physical plan. Returns `None` if there is none, as a planner of another kind may plan otherwise.
    ///
    /// # Errors
    /// If the plan cannot be traversed.
    pub fn new(plan: &Arc<dyn ExecutionPlan>, host: Arc<HostContext>) -> Result<Option<Self>> {
        let mut aggregate = None;
        plan.apply(|node| {
            if node.is::<ForeignExecutionPlan>() && node.name() == "AggregateExec" {
                aggregate = Some(Arc::clone(node));
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(aggregate.map(|node| Self { node: FFI_ExecutionPlan::new(node, None), host }))
    }

    /// Reserves memory. It does not block: the host aggregates one row.
    ///
    /// # Errors
    /// If the session's pool has not enough memory.
    pub fn reserve(&self, size: usize) -> Result<HostReservation> {
        // Each reservation has nodes of its own, since a node keeps the metrics of all its executions. No other node is between the two
        // that could repartition or buffer the row.
        let rows = FFI_ExecutionPlan::new(Arc::new(ReservationSource::new(size as u64)), None);
        // SAFETY: the function belongs to the owner of the node.
        let node = match unsafe { (self.node.with_new_children)(&self.node, [rows].into_iter().collect()) } {
            FFI_Result::Ok(node) => node,
            FFI_Result::Err(error) => return Err(DataFusionError::Ffi(error.to_string())),
        };
        let mut execution = self.host.execute(&node, 0)?;
        match execution.poll_next_unpin(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => Ok(HostReservation { size, _execution: execution }),
            Poll::Ready(Some(Err(error))) => Err(error),
            Poll::Ready(_) => internal_err!("the session has not kept account of memory"),
        }
    }
}

impl fmt::Debug for HostMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostMemory").finish_non_exhaustive()
    }
}

/// An accumulator that reports the sum of its rows as its size.
#[derive(Debug, Default)]
struct ReservationAccumulator(u64);

impl Accumulator for ReservationAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let bytes = values.first().and_then(|bytes| bytes.as_primitive_opt::<UInt64Type>());
        self.0 += bytes.map_or(0, |bytes| bytes.values().iter().sum());
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::UInt64(Some(self.0)))
    }

    fn size(&self) -> usize {
        self.0 as usize
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.evaluate()?])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.update_batch(states)
    }
}

const BYTES: &str = "bytes";

/// A scan of one row with the size to reserve, which never ends.
#[derive(Debug)]
struct ReservationSource {
    bytes: u64,
    properties: Arc<PlanProperties>,
}

impl ReservationSource {
    fn new(bytes: u64) -> Self {
        let schema = Arc::new(Schema::new(vec![Field::new(BYTES, DataType::UInt64, false)]));
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Self { bytes, properties: Arc::new(properties) }
    }
}

impl DisplayAs for ReservationSource {
    fn fmt_as(&self, _t: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "ReservationSource: {BYTES}={}", self.bytes)
    }
}

impl ExecutionPlan for ReservationSource {
    fn name(&self) -> &str {
        "ReservationSource"
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

    fn execute(&self, _partition: usize, _context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let bytes: ArrayRef = Arc::new(UInt64Array::from(vec![self.bytes]));
        let batch = RecordBatch::try_new(self.schema(), vec![bytes])?;
        let rows = once(future::ready(Ok(batch))).chain(pending());
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), rows)))
    }
}
