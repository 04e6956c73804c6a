//! Replacing the calls of a plan by `jvp` over the columns that vary.

mod branches;
mod by_row;
mod call;
mod common;
mod conditions;
mod context;
mod derivative;
mod diagnose;
mod nested;
mod pull_up_subqueries;
mod query_copies;
mod resolve;
mod rewrite_call;
pub mod rewriter;
mod shadowed;
mod split_aggregate_calls;
mod tangent_cache;
