//! Rewrites the calls of a plan: `grad`, `jvp` and `vjp` become `jvp` over the columns of one node that vary.
//!
//! `rewriter` visits the nodes, those of inner queries first. At a node with calls, `by_row` numbers the rows of
//! variables that subqueries read, and sweeps gradients by row; `tangent_cache` propagates the other tangents to the
//! inputs of the node; and `rewrite_call` writes each call over these columns. `diagnose` refuses calls that have a
//! derivative which is not the one that the user meant.

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
