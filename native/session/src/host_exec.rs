//! Nodes of the host below nodes of this library.

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DataFusionError, Result, Statistics, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use datafusion_ffi::execution::FFI_TaskContext;
use datafusion_ffi::execution_plan::{FFI_ExecutionPlan, ForeignExecutionPlan};
use datafusion_ffi::ffi_option::FFI_Result;
use std::fmt;
use std::sync::Arc;

/// The last physical rule of a local session: wraps each node of the host, so it is executed in its own session.
#[derive(Debug)]
pub struct WrapHostExec(pub Arc<HostContext>);

/// The context in which the host executes the plans of a statement, with its memory pool, files and object stores.
#[derive(Debug)]
pub struct HostContext(pub FFI_TaskContext);

impl HostContext {
    /// Executes a plan of the host in its session.
    ///
    /// # Errors
    /// If the plan cannot be executed.
    pub fn execute(&self, plan: &FFI_ExecutionPlan, partition: usize) -> Result<SendableRecordBatchStream> {
        // SAFETY: the function belongs to the owner of the plan, which clones the context before it returns.
        match unsafe { (plan.execute)(plan, partition, self.borrow_context()) } {
            FFI_Result::Ok(stream) => Ok(Box::pin(stream)),
            FFI_Result::Err(error) => Err(DataFusionError::Ffi(error.to_string())),
        }
    }

    /// Returns a borrowed handle of the context. It must not outlive `self`.
    fn borrow_context(&self) -> FFI_TaskContext {
        /// Releases nothing: a borrowed handle does not own the context.
        unsafe extern "C" fn no_op(_context: &mut FFI_TaskContext) {}
        FFI_TaskContext {
            session_id: self.0.session_id,
            task_id: self.0.task_id,
            session_config: self.0.session_config,
            scalar_functions: self.0.scalar_functions,
            aggregate_functions: self.0.aggregate_functions,
            window_functions: self.0.window_functions,
            release: no_op,
            private_data: self.0.private_data,
            library_marker_id: self.0.library_marker_id,
        }
    }
}

// SAFETY: the handle points to an `Arc` of the host's `TaskContext`, which threads share.
unsafe impl Send for HostContext {}
// SAFETY: as above.
unsafe impl Sync for HostContext {}

impl PhysicalOptimizerRule for WrapHostExec {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _config: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let wrapped = plan.transform_up(|node| {
            if !node.is::<ForeignExecutionPlan>() {
                return Ok(Transformed::no(node));
            }
            let plan = FFI_ExecutionPlan::new(Arc::clone(&node), None);
            Ok(Transformed::yes(Arc::new(HostExec { node, plan, host: Arc::clone(&self.0) }) as Arc<dyn ExecutionPlan>))
        })?;
        Ok(wrapped.data)
    }

    fn name(&self) -> &str {
        "xql_ffi_lend"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// A node of the host below nodes of this library, executed in the session of the host.
struct HostExec {
    node: Arc<dyn ExecutionPlan>,
    plan: FFI_ExecutionPlan,
    host: Arc<HostContext>,
}

impl fmt::Debug for HostExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HostExec").field(&self.node).finish()
    }
}

impl DisplayAs for HostExec {
    fn fmt_as(&self, _t: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}", self.node.name())
    }
}

impl ExecutionPlan for HostExec {
    fn name(&self) -> &str {
        self.node.name()
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.node.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![]
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        if children.is_empty() { Ok(self) } else { internal_err!("{} has no children here", self.name()) }
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn for<'a> FnMut(&'a Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn metrics(&self) -> Option<MetricsSet> {
        self.node.metrics()
    }

    fn statistics_from_inputs(&self, _inputs: &[Arc<Statistics>], args: &StatisticsArgs) -> Result<Arc<Statistics>> {
        self.node.statistics_from_inputs(&[], args)
    }

    fn execute(&self, partition: usize, _context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        self.host.execute(&self.plan, partition)
    }
}
