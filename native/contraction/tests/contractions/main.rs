//! Sums of products by every kernel, beside those by the join and the groups that DataFusion has for them.

mod changing;
mod draw;
mod lookups;
mod named;
mod random;
mod session;
