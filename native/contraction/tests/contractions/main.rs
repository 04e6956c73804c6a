//! Tests of sums of products by every kernel against DataFusion's join and aggregation.

mod draw;
mod mutable_table;
mod named;
mod random;
mod session;
mod unique_key_joins;
