//! Workarounds for faults of DataFusion in plans that differentiate: in recursive queries, over grouping sets, over
//! aggregations without keys, and in the planning time of windows. Other plans are left alone, and are executed as
//! without this project.
//!
//! Each file names DataFusion's issue, if there is one, and has a test that fails once the fault is fixed. Workarounds
//! for faults that DataFusion 55 has fixed are compiled for 54 alone.

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
