//! Sums, products and bounds of the numbers in a graph.
//!
//! Zeros and ones are folded, numbers merged and signs drawn outwards at once. Beyond that, an operation is written as it
//! stands or in one of a few other forms: a product from its factors, with what cancels gone; a sum with like terms
//! merged, with common factors drawn out, or over a common denominator. The cheapest wins, on a tie the form as it stands,
//! because that is the one whose parts other derivatives of the query share.
//!
//! A structural zero is exact, as JAX's symbolic zeros are: `0 * x` is 0 also where `x` is NaN.

mod bounds;
mod monomial;
mod monomials;
mod powers;
mod products;
mod roots;
mod signs;
mod sums;
#[cfg(test)]
mod testing;
mod weight;

pub use bounds::{is_always_finite, is_finite, is_smooth};
pub use monomials::Algebra;
pub use powers::as_written_power;
pub use products::{divide, multiply, power};
pub use roots::square_root;
pub use signs::{negate, place_sign};
pub use sums::{add, add_all, subtract};
#[cfg(test)]
pub use testing::show;
