//! What DataFusion 54 gets wrong in recursive queries, mended in plans that differentiate. Any other plan stays as it is.

pub mod nullability;
pub mod pruning;

use datafusion_common::Result;
use datafusion_expr::LogicalPlan;

use nullability::{Static, nullable_by_either_term};
use pruning::keep_recursive_columns;

/// A plan whose types are coerced and which calls no operator, mended.
pub fn mended(plan: LogicalPlan) -> Result<LogicalPlan> {
    Ok(nullable_by_either_term(plan, Static::Settled)?.transform_data(keep_recursive_columns)?.data)
}
