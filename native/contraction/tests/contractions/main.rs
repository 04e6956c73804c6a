//! Sums of products by every kernel, beside those by the join and the groups that DataFusion has for them.

mod draw;
mod mutable_table;
mod named;
mod random;
mod session;
mod unique_key_joins;
