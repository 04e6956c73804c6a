//! Statements that are prepared.

use datafusion_common::Result;
use datafusion_common::tree_node::Transformed;
use datafusion_expr::LogicalPlan;
use datafusion_optimizer::{AnalyzerRule, OptimizerConfig, OptimizerRule};
use std::fmt::Debug;

/// An analyzer rule as the first of the optimizer's, for `PREPARE`.
///
/// DataFusion optimizes a statement that is prepared without analyzing it, so that expressions would be simplified before the
/// analyzer rule has seen them. All other plans have been analyzed, and are left as they are: the time at which their
/// execution started is known.
#[derive(Debug)]
pub struct WhenPrepared<R>(pub R);

impl<R: AnalyzerRule> OptimizerRule for WhenPrepared<R> {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        if config.query_execution_start_time().is_some() {
            return Ok(Transformed::no(plan));
        }
        self.0.analyze(plan, &config.options()).map(Transformed::yes)
    }
}
