//! One reader of each shared relation shows its plan.

use datafusion_common::Result;
use datafusion_common::config::ConfigOptions;
use datafusion_common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion_physical_optimizer::PhysicalOptimizerRule;
use datafusion_physical_plan::ExecutionPlan;
use std::collections::HashSet;
use std::sync::Arc;

use super::exec::SharedExec;

/// The physical optimizer rule that puts the plan of each shared relation below the first of its readers.
///
/// ```text
/// HashJoinExec                          HashJoinExec
///   SharedExec: reads w                   SharedExec: computes w
///   SharedExec: reads w         ->          DataSourceExec
///                                         SharedExec: reads w
/// ```
///
/// There `EXPLAIN` shows it and a recursive query resets it for each iteration. It has to be the last rule, so that none
/// after it takes a relation for one that a single reader has to itself.
#[derive(Debug, Default)]
pub struct ShareRelations;

impl PhysicalOptimizerRule for ShareRelations {
    fn name(&self) -> &str {
        "share_relations"
    }

    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _config: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let mut shown = HashSet::new();
        plan.transform_down(|node| {
            let Some(reader) = node.downcast_ref::<SharedExec>() else { return Ok(Transformed::no(node)) };
            let shows = shown.insert(Arc::as_ptr(reader.shared()));
            if shows == reader.shows_plan() {
                return Ok(Transformed::no(node));
            }
            Ok(Transformed::yes(Arc::new(reader.showing(shows))))
        })
        .data()
    }

    fn schema_check(&self) -> bool {
        true
    }
}
