//! Statements as plans, and what the engine makes of these up to where derivatives are expressions.
//!
//! `catalog` has the tables and views that statements name, `functions` what they call beside DataFusion's own, `words` expressions that
//! keep words of another engine; `planner` plans a statement with these; `derive` types and differentiates a plan; `held` has
//! views over tables that have been replaced; `columns` has the columns of queries.

mod catalog;
mod columns;
mod derive;
mod functions;
mod held;
mod planner;
mod words;

pub use catalog::{Catalog, Table};
pub use columns::{columns_of, query_or_all};
pub use derive::{context, differentiated, expression, is_call, is_lateral, loses_columns, simplified, tidied, typed};
pub use functions::Site;
pub use held::with_held_views;
pub use planner::Planner;
pub use words::{has_words_in, spelled};
