//! Cross joins with a small right side.
//!
//! DataFusion's cross join makes a batch for each row of its left side. It puts the smaller side left by their statistics, which are a guess
//! where rows are groups: the gradients of 100,000 samples by 30 weights, `losses CROSS JOIN w`, were as many batches of 30 rows.

use datafusion_common::Result;
use datafusion_common::stats::Precision;
use datafusion_physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion_physical_plan::joins::CrossJoinExec;
use datafusion_physical_plan::{ExecutionPlan, ExecutionPlanProperties, Partitioning};
use std::sync::Arc;

use super::join_tree::repartition;
use crate::version::statistics;

/// The most rows of a small side. If the guess was right, and the other side is smaller still, there are so many batches.
const MAX_ROWS: usize = 1 << 10;

/// Returns a cross join with its sides exchanged, if the right side is known to have few rows and those of the left side are not
/// known.
///
/// ```text
/// CrossJoinExec                            ProjectionExec: the columns in their order
///   the samples                   ->         CrossJoinExec
///   the weights, 30 rows                       the weights, 30 rows
///                                              the samples
/// ```
///
/// # Errors
/// If the plan cannot be rebuilt.
pub fn put_small_side_left(node: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let Some(join) = node.downcast_ref::<CrossJoinExec>() else { return Ok(None) };
    let [left, right] = [statistics(join.left(), None)?.num_rows, statistics(join.right(), None)?.num_rows];
    let is_small = matches!(right, Precision::Exact(rows) if rows <= MAX_ROWS);
    if !is_small || matches!(left, Precision::Exact(_)) {
        return Ok(None);
    }
    // A parent may rely on the number of partitions, which is that of the right side.
    let partitions = join.right().output_partitioning().partition_count();
    let apart = join.left().downcast_ref::<CoalescePartitionsExec>().map(CoalescePartitionsExec::input);
    let many = apart.filter(|left| left.output_partitioning().partition_count() == partitions).unwrap_or(join.left());
    let few: Arc<dyn ExecutionPlan> = match partitions {
        1 => Arc::clone(join.right()),
        _ => Arc::new(CoalescePartitionsExec::new(Arc::clone(join.right()))),
    };
    let exchanged = CrossJoinExec::new(Arc::clone(many), few).swap_inputs()?;
    if exchanged.output_partitioning().partition_count() == partitions {
        return Ok(Some(exchanged));
    }
    repartition(exchanged, Partitioning::RoundRobinBatch(partitions)).map(Some)
}
