//! Derivatives as text: rewrites statements with `grad`, `jvp`, `vjp` and `stop_gradient` as plain SQL.
//!
//! DataFusion's planner binds names and types, with bare schemas for tables; `xql-relations` and `xql-autodiff` differentiate; the result
//! is text for a session that knows nothing of derivatives. A row-local derivative replaces its call, and all else stays as it is written.
//! A query whose derivatives see through relations is unparsed as a whole.
//!
//! In the order of the modules, each of which imports only from those before it: `names` has identifiers; `expr` unparses expressions;
//! `statement` tokenizes a text and finds the calls in it; `plan` plans a statement and differentiates it; `unparse` unparses plans;
//! `edits` replaces calls by derivatives; `expand` decides between the two.
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
