//! Replacing the calls of a plan by `jvp` over the columns that vary.

mod above;
mod branches;
mod by_row;
mod context;
mod derivative;
mod identity;
pub mod plan;
mod replace;
mod resolve;
mod site;
