//! Watching recursive queries while they run.

use datafusion_catalog::cte_worktable::CteWorkTable;
use datafusion_catalog::default_table_source::{provider_as_source, source_as_provider};
use datafusion_common::Result;
use datafusion_common::tree_node::Transformed;
use datafusion_expr::LogicalPlan;
use datafusion_optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};
use std::sync::Arc;

use crate::vocabulary::observed::{ObservedWorkTable, observer};

/// The optimizer rule that makes recursive queries notify the observer, if there is one.
#[derive(Debug)]
pub struct ObserveRecursion;

impl OptimizerRule for ObserveRecursion {
    fn name(&self) -> &str {
        "observe_recursion"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(&self, plan: LogicalPlan, _config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::TableScan(mut scan) = plan else { return Ok(Transformed::no(plan)) };
        let observed = observer().and_then(|observer| {
            let provider = source_as_provider(&scan.source).ok()?;
            Some(ObservedWorkTable::new(provider.downcast_ref::<CteWorkTable>()?, observer))
        });
        let Some(observed) = observed else { return Ok(Transformed::no(LogicalPlan::TableScan(scan))) };
        scan.source = provider_as_source(Arc::new(observed));
        Ok(Transformed::yes(LogicalPlan::TableScan(scan)))
    }
}
