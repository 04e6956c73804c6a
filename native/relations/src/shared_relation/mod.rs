//! Relations that are computed once per execution, however often a plan reads them.
//!
//! DataFusion 54 plans a CTE anew wherever it is read. A derivative reads its primal more than once: to find the row of a
//! maximum again, to keep the rows of a `LIMIT` and the draws of `random()`, and not to compute a layer of a network twice for
//! each layer above it. [`SharedRelation`] is a table whose rows are those of a plan. [`SharedScanExec`](crate::SharedScanExec) reads it: the first reader
//! of an execution computes the rows, all others wait for them.
//!
//! Only this process has that node. [`inline_shared_relations()`] makes a plan without it, in which each reader
//! computes the relation itself.

mod assert_unique;
mod batch_table;
mod columns_read;
pub mod determinism;
mod draws;
mod inline;
mod isolated_join;
mod iterations;
mod local_execution;
mod outer_session;
mod relation;
mod shared_draws;
mod subplan_rewriter;

pub use assert_unique::{each_row_once, unchecked};
pub use batch_table::Given;
pub use columns_read::find_columns_read;
pub use draws::DrawingRelations;
pub use inline::{common_inlined, inline_for_analysis, inline_shared_relations};
pub use isolated_join::{isolate_joins, restore_joins};
pub use iterations::IterationsNode;
pub use local_execution::is_computed_here;
pub use relation::{SharedRelation, read_from};
pub use subplan_rewriter::{Replaced, common_rewritten, each_rewritten};
