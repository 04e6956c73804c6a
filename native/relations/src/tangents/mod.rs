//! Tangents of columns and of the expressions over them.

pub mod linearize;
pub mod pairs;
pub mod tangent;
