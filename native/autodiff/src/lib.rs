//! Differentiation of DataFusion expressions.
//!
//! [`grad`], [`jvp`] and [`vjp`] are scalar functions that are never evaluated. Their `simplify` hook replaces a call by
//! the derivative of its first argument, as plain expressions, while the planner simplifies the query:
//!
//! ```
//! # use datafusion::prelude::*;
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> datafusion::error::Result<()> {
//! let ctx = SessionContext::new();
//! for function in xql_autodiff::functions() {
//!     ctx.register_udf(function);
//! }
//! let newton = ctx.sql("SELECT x - (x * x - 2) / grad(x * x - 2, x) AS x FROM (VALUES (1.0)) AS t(x)").await?;
//! datafusion::assert_batches_eq!(["+-----+", "| x   |", "+-----+", "| 1.5 |", "+-----+"], &newton.collect().await?);
//! # Ok(())
//! # }
//! ```
//!
//! A function of your own is differentiated by a [`Rule`] of your own, its partial derivatives in SQL:
//!
//! ```
//! # use datafusion::arrow::array::{AsArray, Float64Array};
//! # use datafusion::arrow::datatypes::{DataType, Float64Type};
//! # use datafusion::logical_expr::{ColumnarValue, Volatility, create_udf};
//! # use datafusion::prelude::*;
//! # use std::sync::Arc;
//! use xql_autodiff::{Rule, Rules};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> datafusion::error::Result<()> {
//! let double = DataType::Float64;
//! let softplus = create_udf("softplus", vec![double.clone()], double, Volatility::Immutable, Arc::new(|args| {
//!     let x = args[0].to_array(1)?;
//!     let values: Float64Array = x.as_primitive::<Float64Type>().unary(|x| x.exp().ln_1p());
//!     Ok(ColumnarValue::Array(Arc::new(values)))
//! }));
//! let ctx = SessionContext::new();
//! ctx.register_udf(softplus);
//! let rules = Rules::new([Rule::new("softplus(x)", &["1 / (1 + exp(-x))"])?])?;
//! for function in xql_autodiff::functions_with(&rules) {
//!     ctx.register_udf(function);
//! }
//! let slope = ctx.sql("SELECT grad(softplus(2 * x), x) AS d FROM (VALUES (0.0)) AS t(x)").await?;
//! datafusion::assert_batches_eq!(["+-----+", "| d   |", "+-----+", "| 1.0 |", "+-----+"], &slope.collect().await?);
//! # Ok(())
//! # }
//! ```
//!
//! A call sees one node of a plan, and refuses what another node may have computed. The crate `xql-relations` has the analyzer
//! rule that sees all nodes, and one function that registers it with these: `xql_relations::register(&ctx)`.
//!
//! The modules are layers, each of which imports from those before it only: `vocabulary` has types, columns and messages;
//! `table` the rules of DataFusion's functions, a line each; `graph` the expression with every distinct sub-expression
//! once; `algebra` its sums and products; [`rules`] partial derivatives as formulas over it; `pullback` propagates cotangents from
//! the output to the variables; `api` checks calls and words refusals; `operators` and `stop_gradient` are the functions themselves.

mod algebra;
mod api;
mod graph;
mod operators;
mod pullback;
pub mod rules;
mod stop_gradient;
mod table;
pub mod vocabulary;

pub use api::{Varies, inactive_condition, is_smooth};
pub use graph::{Graph, Layers, NodeId, Root, Threshold, import, import_program, layer, never_fails};
pub use operators::{
    Call, Differential, analyzed_with, batch_request, functions, functions_with, grad, grad_with, jvp, jvp_with,
    recognize, tangent_with, vjp, vjp_with,
};
pub use rules::{Rule, Rules};
pub use stop_gradient::stop_gradient;
pub use table::rule_table;
pub use vocabulary::refusals::Refused;

// The program in the README runs as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
