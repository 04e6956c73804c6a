//! What DataFusion gets wrong in recursive queries, over grouping sets and over aggregates without keys, and takes too long for with windows,
//! mended in plans that differentiate. Any other plan is executed as it is without this project.
//!
//! Each file names DataFusion's issue, and has a test that fails once the fault is gone. What DataFusion 55 has mended is for 54 alone.

#[cfg(not(feature = "datafusion-55"))]
pub mod dependencies;
pub mod global_aggregates;
#[cfg(not(feature = "datafusion-55"))]
pub mod grouping_sets;
pub mod join_build_side;
#[cfg(not(feature = "datafusion-55"))]
pub mod nullability;
#[cfg(not(feature = "datafusion-55"))]
pub mod pruning;
pub mod window_orderings;
pub mod work_tables;
