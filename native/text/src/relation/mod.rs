//! Plans as queries.
//!
//! Every node becomes a part of a `SELECT`, or a `SELECT` over that of its input where the language wants it so. What a derivative
//! reads several times is a common table expression. What cannot be written is an error that names it.
//!
//! `query` goes through a plan; `leaves`, `clauses`, `aggregates` and `grouping_sets`, `windows`, `joins`, `unions`, `unnest`,
//! `recursion` and `shared` write a kind of node each, with the methods of the one `writer`; `expressions` writes what stands in a
//! node.

mod aggregates;
mod clauses;
mod expressions;
mod grouping_sets;
mod joins;
mod leaves;
mod names;
mod query;
mod recursion;
mod shared;
mod unions;
mod unnest;
mod windows;
mod writer;

pub use query::query_sql;
