//! What it takes to compute a relation anew for each of its readers: that all of them find the same rows.

mod float_stability;
mod order;
mod recursion;
mod rows;

pub use float_stability::check_found_again;
pub use recursion::recursion;
pub use rows::repeatable;
