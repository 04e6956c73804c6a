//! Plans of the host, taken as they are.
//!
//! A finished plan of the host would come back as bytes, of which `datafusion-proto` cannot write all, and be read as other nodes. Instead
//! the last physical rule of the session, which is ours, takes the finished plan and puts a leaf in its place. The leaf crosses as a
//! number, and what the host reads for the number is its own plan again.
//!
//! A planner of another library that stands in between is to see the nodes of the host, and gets them as bytes. What bytes cannot carry
//! it gets as a leaf.

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

/// A plan that crosses as a number.
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

/// How the plan comes back that is made of a statement.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ReturnMode {
    /// As `datafusion-proto` writes it.
    Bytes,
    /// As a number, from the host.
    Number,
    /// As a number, and on its way through another library as a leaf, as what else that cannot write.
    Leaf,
}

/// A statement that has been handed on to another planner.
#[derive(Clone, Copy)]
struct Delegation {
    /// Tells the registered sessions of a process apart.
    session: usize,
    /// How its plan comes back.
    return_mode: ReturnMode,
    /// Tells apart what has been handed on.
    id: u64,
}

thread_local! {
    /// What this thread plans at the moment for a planner of this library.
    static DELEGATION: Cell<Option<Delegation>> = const { Cell::new(None) };
}

/// The future of a planner that a statement has been handed on to.
pub struct DelegatedPlanning<F> {
    future: F,
    delegation: Delegation,
}

impl<F> DelegatedPlanning<F> {
    /// `session` tells the sessions of a process apart.
    pub fn new(future: F, session: usize, return_mode: ReturnMode) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        Self { future, delegation: Delegation { session, return_mode, id } }
    }

    /// Tells apart what has been handed on.
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
        // SAFETY: the field is pinned as its struct is: it is not moved, and the struct has no `Drop`.
        unsafe { self.map_unchecked_mut(|this| &mut this.future) }.poll(context)
    }
}

/// Whether this thread plans a statement that a planner of this session in front has handed on already.
pub fn is_delegated(session: usize) -> bool {
    DELEGATION.get().is_some_and(|delegation| delegation.session == session)
}

/// The number of what has been handed on and is planned by this thread, if something is.
pub fn delegation_id() -> Option<u64> {
    DELEGATION.get().map(|delegation| delegation.id)
}

fn returns_as(return_mode: ReturnMode) -> bool {
    DELEGATION.get().is_some_and(|delegation| delegation.return_mode == return_mode)
}

/// The plan that is meant by a node that is to cross as a number, if it is one.
pub fn plan_to_encode(node: Arc<dyn ExecutionPlan>) -> Option<Arc<dyn ExecutionPlan>> {
    match node.downcast_ref::<PlanHandleExec>() {
        Some(PlanHandleExec(plan)) => Some(Arc::clone(plan)),
        None => returns_as(ReturnMode::Leaf).then_some(node),
    }
}

/// A plan that has crossed, as who reads it now is to have it.
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

/// The last physical rule of a registered session.
pub fn capture_rule() -> FFI_PhysicalOptimizerRule {
    FFI_PhysicalOptimizerRule::new(Arc::new(CapturePlan), Some(runtime()))
}
