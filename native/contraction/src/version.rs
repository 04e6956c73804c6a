//! The differences between DataFusion 54 and 55 (feature `datafusion-55`), for this crate and those above that have physical nodes.

use datafusion_common::{Result, Statistics};
use datafusion_physical_plan::ExecutionPlan;
use datafusion_physical_plan::joins::HashJoinExec;
use std::sync::Arc;

/// Returns the statistics of a plan or of one of its partitions.
///
/// # Errors
/// Those of the plan.
#[cfg(feature = "datafusion-55")]
pub fn statistics(plan: &Arc<dyn ExecutionPlan>, partition: Option<usize>) -> Result<Arc<Statistics>> {
    use datafusion_physical_plan::statistics::{StatisticsArgs, StatisticsContext};
    StatisticsContext::new().compute(plan.as_ref(), &StatisticsArgs::new().with_partition(partition))
}

/// Returns the statistics of a plan or of one of its partitions.
///
/// # Errors
/// Those of the plan.
#[cfg(not(feature = "datafusion-55"))]
pub fn statistics(plan: &Arc<dyn ExecutionPlan>, partition: Option<usize>) -> Result<Arc<Statistics>> {
    plan.partition_statistics(partition)
}

/// Returns whether a scan uses the dynamic filter that a join builds from the keys of its build side.
#[cfg_attr(
    feature = "datafusion-55",
    expect(deprecated, reason = "to look for it below each join takes time that grows as the square of nested joins")
)]
pub fn feeds_dynamic_filter(join: &HashJoinExec) -> bool {
    join.dynamic_filter_expr().is_some_and(|filter| filter.is_used())
}

/// Delegates the distribution of inputs to a node in a field (DataFusion 55).
#[cfg(feature = "datafusion-55")]
macro_rules! delegate_distribution {
    ($($node:ident).+) => {
        fn input_distribution_requirements(
            &self,
        ) -> datafusion_physical_plan::InputDistributionRequirements {
            self.$($node).+.input_distribution_requirements()
        }
    };
}

/// Delegates the distribution of inputs to a node in a field (DataFusion 54).
#[cfg(not(feature = "datafusion-55"))]
macro_rules! delegate_distribution {
    ($($node:ident).+) => {
        fn required_input_distribution(&self) -> Vec<datafusion_physical_plan::Distribution> {
            self.$($node).+.required_input_distribution()
        }
    };
}

/// Implements the method by which a physical node of DataFusion 55 shows its expressions, for one that has none.
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

/// Implements nothing: a physical node of DataFusion 54 does not show its expressions.
#[cfg(not(feature = "datafusion-55"))]
#[macro_export]
macro_rules! without_expressions {
    () => {};
}

pub(crate) use delegate_distribution;
pub use without_expressions;
