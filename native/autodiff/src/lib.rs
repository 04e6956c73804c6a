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
//! How a call is differentiated, in the order of the modules:
//! [`operators`](crate) holds the functions themselves, `variable` says what one may differentiate by, `dag` holds
//! the expression with every distinct sub-expression once, `pullback` carries cotangents from the output to the
//! variables with the partial derivatives of `rules`, and `nulls` makes the result NULL exactly where the expression is.

mod call;
mod dag;
mod derivative;
mod nulls;
mod operators;
mod pullback;
mod relations;
mod rules;
mod variable;

pub use operators::{Differential, functions, grad, jvp, recognize, tangent, vjp};
pub use relations::{DifferentiateRelations, KeepRecursiveColumns, Recognize};
