//! Derivatives as text: statements with `grad`, `jvp`, `vjp` and `stop_gradient` written as plain SQL.
//!
//! DataFusion's planner binds names and types, with bare schemas for tables; `xql-relations` and `xql-autodiff` differentiate; what
//! comes back is text for a session that knows nothing of derivatives. A derivative that says all by itself takes the place of its
//! call, and all else stays as it is written. A query whose derivatives see through relations is written anew.
//!
//! In the order of the modules, each of which imports only from those before it: `names` has identifiers, `binding` texts that may be
//! operands; `values` and `expr` write expressions, `select` the clauses of a query; `source` has a text as tokens, and finds the
//! calls in it; `functions`, `catalog` and `planner` plan a statement; `derive` is what the engine makes of a plan, up to where
//! derivatives are expressions; `columns` has the columns of queries; `relation` writes plans; `splice` puts derivatives in the
//! place of calls; `expand` decides between the two.
//!
//! ```
//! # use arrow::datatypes::{DataType, Field, Schema};
//! # use std::sync::Arc;
//! # use xql_autodiff::Rules;
//! # use xql_text::{Catalog, expand};
//! let mut catalog = Catalog::default();
//! catalog.table("t", Arc::new(Schema::new(vec![Field::new("x", DataType::Float64, true)])));
//! let text = expand("SELECT grad(sin(x), x) AS d FROM t -- by x", &catalog, &Rules::default())?;
//! assert_eq!(text, "SELECT cos(x) AS d FROM t -- by x");
//! # Ok::<(), datafusion_common::DataFusionError>(())
//! ```

mod binding;
mod catalog;
mod columns;
mod derive;
mod expand;
mod expr;
mod functions;
mod names;
mod planner;
mod relation;
mod select;
mod source;
mod splice;
mod values;
mod words;

pub use catalog::Catalog;
pub use expand::{columns, differentiate, edits, expand};
pub use splice::Edit;
