//! Reverse mode: cotangents are propagated from the output of an expression to the variables, where they are multiplied by the tangents.
//!
//! `activity` finds what varies, `nulls` finds where an expression is NULL and makes its derivative NULL there, `sweep` propagates the
//! cotangents, through `choices` branch by branch, or through the operands of a `comparison`, and `refusal` has the reasons why there is no
//! derivative.

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
