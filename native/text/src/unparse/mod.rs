//! Plans as queries.
//!
//! Each node becomes a part of a `SELECT`, or a `SELECT` over that of its input where SQL requires it. What a derivative reads several
//! times becomes a CTE. What cannot be written is an error that names it.
//!
//! `select` has a `SELECT` under construction, `writer` the state of the whole query, `expressions` writes the expressions of a node, and
//! `query` dispatches on nodes. Each other file writes the node that it is named after, over the `SELECT` of its input. `shared_relation`
//! belongs to `table_scan`, and `grouping_sets` to `aggregate`.

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
