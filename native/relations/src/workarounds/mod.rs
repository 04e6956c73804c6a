//! What DataFusion 54 gets wrong in recursive queries and over grouping sets and takes too long for with windows, mended in plans that
//! differentiate. Any other plan stays as it is.

pub mod grouping_sets;
pub mod nullability;
pub mod partitions;
pub mod pruning;
