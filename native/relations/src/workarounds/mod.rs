//! What DataFusion 54 gets wrong in recursive queries.

pub mod nullability;
pub mod pruning;
