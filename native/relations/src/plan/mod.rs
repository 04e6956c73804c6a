//! Rewriting plans, whatever the columns are that they get.

pub mod columns_of_inputs;
pub mod over_input;
pub mod pull_up_column;
pub mod recursion;
pub mod rewrite;
pub mod union;
