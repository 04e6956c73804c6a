//! Plans as queries.
//!
//! Every node becomes a part of a `SELECT`, or a `SELECT` over that of its input where the language wants it so. What a derivative
//! reads several times is a common table expression. What cannot be written is an error that names it.
//!
//! `select` has a `SELECT` that is being put together, `writer` what is kept of the whole query meanwhile, `expressions` what stands
//! in a node. `plans` goes through a plan. Every other file writes the node of a plan that it is called by: its input is a `SELECT`
//! already. Beside `table_scan` stands `shared`, the relations that several parts read, and beside `aggregate` the `grouping_sets`.

mod aggregate;
mod distinct;
mod empty_relation;
mod expressions;
mod filter;
mod grouping_sets;
mod join;
mod limit;
mod names;
mod projection;
mod query;
mod recursive_query;
mod select;
mod shared_relation;
mod sort;
mod subquery;
mod subquery_alias;
mod table_scan;
mod union;
mod unnest;
mod values;
mod window;
mod writer;

pub use query::query_sql;
pub use writer::UnparseOptions;
