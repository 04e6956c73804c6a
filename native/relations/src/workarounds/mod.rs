//! What DataFusion 54 gets wrong in recursive queries and over grouping sets and takes too long for with windows, mended in plans that
//! differentiate. Any other plan stays as it is.

pub mod grouping_sets;
pub mod nullability;
pub mod partitions;
pub mod pruning;

use datafusion_common::Result;
use datafusion_expr::LogicalPlan;

use grouping_sets::unequal_over_grouping_sets;
use nullability::{Static, nullable_by_either_term};
use partitions::partitions_without_orderings;
use pruning::keep_recursive_columns;

/// A plan whose types are coerced and which calls no operator, mended.
pub fn mended(plan: LogicalPlan) -> Result<LogicalPlan> {
    let mended = nullable_by_either_term(plan, Static::Settled)?
        .transform_data(keep_recursive_columns)?
        .transform_data(partitions_without_orderings)?
        .transform_data(unequal_over_grouping_sets)?;
    Ok(mended.data)
}
