//! What differs between DataFusion 54 and 55, which the feature `datafusion-55` stands for, in this crate and in those above that have
//! physical nodes.

use datafusion_common::{Result, Statistics};
use datafusion_physical_plan::ExecutionPlan;
use datafusion_physical_plan::joins::HashJoinExec;
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

/// Whether a part of another input asks for the filter that a join makes of the keys of its first input.
#[cfg_attr(
    feature = "datafusion-55",
    expect(deprecated, reason = "to look for it below each join takes time that grows as the square of nested joins")
)]
pub fn feeds_dynamic_filter(join: &HashJoinExec) -> bool {
    join.dynamic_filter_expr().is_some_and(|filter| filter.is_used())
}

/// The method by which a node of DataFusion 55 says how the rows of its inputs are to be dealt out, for one that asks for what a node in a
/// field of it does.
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

/// The same for DataFusion 54.
#[cfg(not(feature = "datafusion-55"))]
macro_rules! delegate_distribution {
    ($($node:ident).+) => {
        fn required_input_distribution(&self) -> Vec<datafusion_physical_plan::Distribution> {
            self.$($node).+.required_input_distribution()
        }
    };
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

pub(crate) use delegate_distribution;
pub use without_expressions;
