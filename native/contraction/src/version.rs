//! What differs between DataFusion 54 and 55, which the feature `datafusion-55` stands for, in this crate and in those above that have
//! physical nodes.

use datafusion_common::{Result, Statistics};
use datafusion_physical_plan::ExecutionPlan;
use std::sync::Arc;

/// What is known of the rows of a plan, or of one of its partitions.
///
/// # Errors
/// Those of the plan.
#[cfg(feature = "datafusion-55")]
pub fn statistics(plan: &Arc<dyn ExecutionPlan>, partition: Option<usize>) -> Result<Arc<Statistics>> {
    use datafusion_physical_plan::statistics::{StatisticsArgs, StatisticsContext};
    StatisticsContext::new().compute(plan.as_ref(), &StatisticsArgs::new().with_partition(partition))
}

/// What is known of the rows of a plan, or of one of its partitions.
///
/// # Errors
/// Those of the plan.
#[cfg(not(feature = "datafusion-55"))]
pub fn statistics(plan: &Arc<dyn ExecutionPlan>, partition: Option<usize>) -> Result<Arc<Statistics>> {
    plan.partition_statistics(partition)
}

/// The method by which a physical node of DataFusion 55 shows its expressions, for one that shows none.
#[cfg(feature = "datafusion-55")]
#[macro_export]
macro_rules! without_expressions {
    () => {
        fn apply_expressions(
            &self,
            _f: &mut dyn for<'a> FnMut(
                &'a std::sync::Arc<dyn datafusion_physical_plan::PhysicalExpr>,
            )
                -> datafusion_common::Result<datafusion_common::tree_node::TreeNodeRecursion>,
        ) -> datafusion_common::Result<datafusion_common::tree_node::TreeNodeRecursion> {
            Ok(datafusion_common::tree_node::TreeNodeRecursion::Continue)
        }
    };
}

/// Nothing: a physical node of DataFusion 54 does not show its expressions.
#[cfg(not(feature = "datafusion-55"))]
#[macro_export]
macro_rules! without_expressions {
    () => {};
}

pub use without_expressions;
