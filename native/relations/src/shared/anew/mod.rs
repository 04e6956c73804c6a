//! What it takes to compute a relation anew for each of its readers: that all of them find the same rows.

mod order;
mod recursion;
mod rounding;
mod rows;

pub use recursion::recursion;
pub use rounding::check_found_again;
pub use rows::repeatable;
