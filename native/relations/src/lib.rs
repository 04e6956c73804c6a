//! Derivatives through relations: forward mode over the plan, in which the calculus of one node stays with `simplify`.
//!
//! A call sees one node of the plan, to which a value computed below (by a CTE, a join, an aggregate, a window, a recursion)
//! is a column like any other. [`DifferentiateRelations`] gives each such column that varies with the variable a *tangent*: one
//! more column, carried from where the variable originates up to the call, which becomes
//! `jvp(expression, variable, 1, column, tangent, ...)`.
//!
//! In the order of the modules, each of which imports only from those before it: `vocabulary` has the names of added columns, says
//! where a column comes from and tells the operators; `tangents` has what columns carry and the tangent of an expression; `rows`
//! has the derivatives of aggregates and window functions; `shared` has relations that are computed once; `forward` gives the columns of a
//! plan their tangents, node by node; `reverse` carries cotangents down from the value of a subquery to the rows of its relations;
//! `calls` replaces the calls of a node; `stack` writes those that say all by themselves as stacks of projections; `rule` is the
//! analyzer rule, which `register` adds to a session with `stops` and `observe`, by which recursive queries tell what they compute.
//! `workarounds` keeps what DataFusion 54 gets wrong about recursive queries from doing harm where they differentiate.
//!
//! ```
//! # use datafusion::prelude::*;
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> datafusion::error::Result<()> {
//! let ctx = SessionContext::new();
//! xql_relations::register(&ctx);
//! let slope = ctx
//!     .sql("WITH m AS (SELECT w, w * x AS y FROM (VALUES (0.5, 3.0)) AS t(w, x)) SELECT grad(y * y, w) AS d FROM m")
//!     .await?;
//! datafusion::assert_batches_eq!(["+-----+", "| d   |", "+-----+", "| 9.0 |", "+-----+"], &slope.collect().await?);
//! # Ok(())
//! # }
//! ```

mod calls;
mod forward;
mod observe;
mod options;
mod passes;
mod physical;
mod plan;
mod register;
mod reverse;
mod rows;
mod rule;
mod shared;
mod stack;
mod stops;
mod tangents;
mod vocabulary;
mod workarounds;

pub use observe::observe;
pub use options::DerivativeOptions;
pub use physical::{Observer, SharedExec, UniqueRowsExec};
pub use register::{add_rules, register, register_with};
pub use rule::DifferentiateRelations;
pub use shared::{SharedRelation, anew, unchecked};

pub use vocabulary::operators::{Recognize, has_calls};
pub use vocabulary::work_table::is_work_table;

// The programs in the README and on the page about Rust run as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
#[cfg(doctest)]
#[doc = include_str!("../../../docs/rust.md")]
struct Page;
