//! Eliminates `stop_gradient` once all derivatives have been taken.

use datafusion_common::Result;
use datafusion_common::tree_node::Transformed;
use datafusion_expr::LogicalPlan;
use datafusion_optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};
use xql_autodiff::vocabulary::functions::remove_stop_gradient;

use crate::vocabulary::nodes::with_expressions;

/// The optimizer rule that replaces `stop_gradient(x)` by `x`. It must be the last rule: derivatives are taken while
/// expressions are simplified, and need to find the calls.
///
/// ```text
/// Projection: stop_gradient(t.x) * 2 AS y      ->      Projection: t.x * 2 AS y
/// ```
#[derive(Debug)]
pub struct EliminateStopGradient;

impl OptimizerRule for EliminateStopGradient {
    fn name(&self) -> &str {
        "eliminate_stop_gradient"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(&self, plan: LogicalPlan, _config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        with_expressions(plan, remove_stop_gradient)
    }
}
