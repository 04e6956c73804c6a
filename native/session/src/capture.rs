//! Plans of the host, taken as they are.
//!
//! A finished plan of the host would come back as bytes, of which `datafusion-proto` cannot write all, and be read as other nodes. Instead
//! the last physical rule of the session, which is ours, takes the finished plan and puts a leaf in its place. The leaf crosses as a
//! number, and what the host reads for the number is its own plan again.

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
use std::task::{Context, Poll};

use crate::own::runtime;

/// A plan that crosses as a number.
#[derive(Debug)]
pub struct Captured(pub Arc<dyn ExecutionPlan>);

impl DisplayAs for Captured {
    fn fmt_as(&self, _t: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "Captured")
    }
}

impl ExecutionPlan for Captured {
    fn name(&self) -> &str {
        "Captured"
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

thread_local! {
    /// Whether what this thread plans at the moment is to be captured.
    static CAPTURING: Cell<bool> = const { Cell::new(false) };
}

/// A future of a host that plans, of which the plan is to be captured.
pub struct Capturing<F>(pub F);

impl<F: Future> Future for Capturing<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        struct Before(bool);
        impl Drop for Before {
            fn drop(&mut self) {
                CAPTURING.set(self.0);
            }
        }
        let _before = Before(CAPTURING.replace(true));
        // SAFETY: the field is pinned as its struct is: it is not moved, and the struct has no `Drop`.
        unsafe { self.map_unchecked_mut(|this| &mut this.0) }.poll(context)
    }
}

#[derive(Debug)]
struct Capture;

impl PhysicalOptimizerRule for Capture {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _config: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(if CAPTURING.get() { Arc::new(Captured(plan)) } else { plan })
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
    FFI_PhysicalOptimizerRule::new(Arc::new(Capture), Some(runtime()))
}
