//! Physical plans of the host, captured as handles.
//!
//! A finished plan of the host would return as bytes. `datafusion-proto` cannot encode all of its nodes, and decodes others as new ones.
//! Instead, the last physical rule of the session, which is ours, replaces the finished plan by a leaf. The codec encodes the leaf as a
//! handle, and the host decodes the handle as its own plan.
//!
//! A planner of another library in between needs to see the nodes of the host, so it gets them as bytes. Nodes that bytes cannot carry are
//! leaves for it.

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use datafusion_ffi::physical_optimizer::FFI_PhysicalOptimizerRule;
use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use crate::runtime::runtime;

/// A leaf that stands for a plan and is encoded as a handle.
#[derive(Debug)]
pub struct PlanHandleExec(pub Arc<dyn ExecutionPlan>);

impl DisplayAs for PlanHandleExec {
    fn fmt_as(&self, _t: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "PlanHandleExec")
    }
}

impl ExecutionPlan for PlanHandleExec {
    fn name(&self) -> &str {
        "PlanHandleExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.0.properties()
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
        self.0.execute(partition, context)
    }
}

/// How the physical plan of a statement is returned.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ReturnMode {
    /// As `datafusion-proto` encodes it.
    Bytes,
    /// As a handle, from the host.
    Number,
    /// As a handle, which a library in between sees as a leaf.
    Leaf,
}

/// A statement that is planned by the planner behind ours.
#[derive(Clone, Copy)]
struct Delegation {
    /// The key of the registered session.
    session: usize,
    /// How its plan is returned.
    return_mode: ReturnMode,
    /// The identifier of the delegation.
    id: u64,
}

thread_local! {
    /// The delegation that this thread is planning.
    static DELEGATION: Cell<Option<Delegation>> = const { Cell::new(None) };
}

/// The future of a delegated statement's plan. While it is polled, the thread knows the delegation.
pub struct DelegatedPlanning<F> {
    future: F,
    delegation: Delegation,
}

impl<F> DelegatedPlanning<F> {
    /// Creates a delegation of the session with this key.
    pub fn new(future: F, session: usize, return_mode: ReturnMode) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        Self { future, delegation: Delegation { session, return_mode, id } }
    }

    /// Returns the identifier of the delegation.
    pub fn id(&self) -> u64 {
        self.delegation.id
    }
}

impl<F: Future> Future for DelegatedPlanning<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        struct Restore(Option<Delegation>);
        impl Drop for Restore {
            fn drop(&mut self) {
                DELEGATION.set(self.0);
            }
        }
        let _restore = Restore(DELEGATION.replace(Some(self.delegation)));
        // SAFETY: the field is structurally pinned: it is never moved, and the struct has no `Drop`.
        unsafe { self.map_unchecked_mut(|this| &mut this.future) }.poll(context)
    }
}

/// Returns whether this thread plans a statement that a planner of this session has already delegated.
pub fn is_delegated(session: usize) -> bool {
    DELEGATION.get().is_some_and(|delegation| delegation.session == session)
}

/// Returns the identifier of the delegation that this thread is planning.
pub fn delegation_id() -> Option<u64> {
    DELEGATION.get().map(|delegation| delegation.id)
}

fn returns_as(return_mode: ReturnMode) -> bool {
    DELEGATION.get().is_some_and(|delegation| delegation.return_mode == return_mode)
}

/// Returns the plan that a node is a handle of, `None` if the node has to be encoded otherwise.
pub fn plan_to_encode(node: Arc<dyn ExecutionPlan>) -> Option<Arc<dyn ExecutionPlan>> {
    match node.downcast_ref::<PlanHandleExec>() {
        Some(PlanHandleExec(plan)) => Some(Arc::clone(plan)),
        None => returns_as(ReturnMode::Leaf).then_some(node),
    }
}

/// Wraps a decoded plan as a leaf, if a library in between decodes it.
pub fn wrap_decoded(plan: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    if returns_as(ReturnMode::Leaf) { Arc::new(PlanHandleExec(plan)) } else { plan }
}

#[derive(Debug)]
struct CapturePlan;

impl PhysicalOptimizerRule for CapturePlan {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _config: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let captures = returns_as(ReturnMode::Number) || returns_as(ReturnMode::Leaf);
        Ok(if captures && !plan.is::<PlanHandleExec>() { Arc::new(PlanHandleExec(plan)) } else { plan })
    }

    fn name(&self) -> &str {
        "xql_ffi_capture"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Returns the last physical rule of a registered session.
pub fn capture_rule() -> FFI_PhysicalOptimizerRule {
    FFI_PhysicalOptimizerRule::new(Arc::new(CapturePlan), Some(runtime()))
}
