//! Tangents of columns and of the expressions over them.

pub mod dual;
pub mod linearize;
pub mod tangent;
