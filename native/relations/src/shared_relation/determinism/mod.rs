//! Determinism: a shared relation can be inlined only if all of its readers compute the same rows, in spite of ties in
//! an order, rounded sums and volatile functions.
//!
//! `rows` makes a relation repeatable or refuses it, `order` completes orders to total ones, `float_stability` finds
//! values whose last digits may differ, and `recursion` writes iterations as a recursive query.

mod float_stability;
mod order;
mod recursion;
mod rows;

pub use float_stability::check_found_again;
pub use recursion::recursion;
pub use rows::repeatable;
