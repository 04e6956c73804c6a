//! Relations that are computed once per execution, however often a plan reads them.
//!
//! DataFusion 54 plans a CTE anew wherever it is read. A derivative reads its primal more than once: to find the row of a
//! maximum again, to keep the rows of a `LIMIT` and the draws of `random()`, and not to compute a layer of a network twice for
//! each layer above it. [`SharedRelation`] is a table whose rows are those of a plan. [`SharedExec`](crate::SharedExec) reads it: the first reader
//! of an execution computes the rows, all others wait for them.
//!
//! Only this process has the node that does so. [`written_out()`] makes a plan without it, which computes what it reads anew for each
//! reader.

pub mod anew;
mod given;
mod here;
mod iterations;
mod once;
mod part;
mod relation;
mod replaced;
mod whole;
mod written_out;

pub use given::Given;
pub use here::is_computed_here;
pub use iterations::Iterations;
pub use once::{each_row_once, unchecked};
pub use part::joined_apart;
pub use relation::{SharedRelation, read_from};
pub use replaced::{Replaced, common_rewritten, each_rewritten};
pub use written_out::{common_inlined, looked_through, written_out};
