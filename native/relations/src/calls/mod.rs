//! Replacing the calls of a plan by `jvp` over the columns that vary.

mod above;
mod beside;
mod branches;
mod by_row;
mod call;
mod common;
mod conditions;
mod context;
mod derivative;
mod diagnose;
mod inputs;
mod nested;
pub mod plan;
mod replace;
mod resolve;
mod shadowed;
