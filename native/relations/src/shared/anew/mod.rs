//! What it takes to compute a relation anew for each of its readers: that all of them find the same rows.

mod order;
mod rounding;

pub use order::{check_order, check_repeatable, ordered_further, total_order, totally_ordered};
pub use rounding::check_found_again;
