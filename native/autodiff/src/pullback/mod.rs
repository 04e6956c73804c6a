//! Reverse mode: cotangents carried from the output of an expression to the variables, where they meet the tangents.
//!
//! `activity` says what varies, `nulls` where an expression is NULL and how its derivative is made NULL there, `sweep` carries
//! the cotangents, through `choices` branch by branch, or by what their conditions have `compared`, and `refusal` is what it
//! answers where there is no derivative.

mod activity;
mod choices;
mod comparison;
mod nulls;
mod refusal;
mod sweep;

pub use choices::tangent_of;
pub use nulls::{NullSets, Sources};
pub use refusal::{PullbackError, Refusal};
pub use sweep::{Direction, Pullback};
