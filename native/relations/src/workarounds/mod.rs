//! What DataFusion 54 gets wrong in plans with derivatives.

pub mod nullability;
pub mod prepared;
pub mod pruning;
