//! Rewriting plans, whatever the columns are that they get.

pub mod lift;
pub mod over_input;
pub mod recursion;
pub mod rewrite;
pub mod union;
