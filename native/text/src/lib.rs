//! Derivatives as text: statements with `grad`, `jvp`, `vjp` and `stop_gradient` written as plain SQL.
//!
//! DataFusion's planner binds names and types, with bare schemas for tables; `xql-relations` and `xql-autodiff` differentiate; what
//! comes back is text for a session that knows nothing of derivatives. A derivative that says all by itself takes the place of its
//! call, and all else stays as it is written. A query whose derivatives see through relations is written anew.
//!
//! In the order of the modules, each of which imports only from those before it: `names` has identifiers; `expr` writes expressions;
//! `statement` has a text as tokens, and finds the calls in it; `plan` plans a statement and differentiates it; `write` writes plans;
//! `splice` puts derivatives in the place of calls; `expand` decides between the two.
//!
//! ```
//! # use arrow::datatypes::{DataType, Field, Schema};
//! # use std::sync::Arc;
//! # use xql_autodiff::Rules;
//! # use xql_text::{Catalog, expand};
//! let mut catalog = Catalog::default();
//! catalog.add_table("t", Arc::new(Schema::new(vec![Field::new("x", DataType::Float64, true)])));
//! let text = expand("SELECT grad(sin(x), x) AS d FROM t -- by x", &catalog, &Rules::default())?;
//! assert_eq!(text, "SELECT cos(x) AS d FROM t -- by x");
//! # Ok::<(), datafusion_common::DataFusionError>(())
//! ```

mod edits;
mod expand;
mod expr;
mod names;
mod plan;
mod statement;
mod unparse;

pub use edits::Edit;
pub use expand::{columns, differentiate, edits, expand};
pub use plan::Catalog;
pub use statement::with_materialization;

// The programs on the page about Rust run as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/rust.md")]
struct Page;
