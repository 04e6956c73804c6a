//! Derivatives in sessions of a library that was compiled separately: DataFusion's stock wheel.
//!
//! Such a *host* exposes its plans to a query planner and its nodes to codecs, as C structs, and takes no rule for logical plans. So the
//! planner of this crate is the place where a statement is differentiated and optimized:
//!
//! 0. `statement_text` plans a statement that reads a relation several times, before the host inlines the relation for each reader. The
//!    host gets a `statement_table` in its place, whose `statement_parameters` the host puts in where it is prepared.
//! 1. `codec`: the host encodes the analyzed plan as bytes. Its tables and our functions become *handles*, numbers in a registry of this
//!    process.
//! 2. `functions` replaces handles of DataFusion's built-in functions by those of this library, which the derivative rules know.
//! 3. `reunify` restores the identity of tables and CTEs, using the names that `statement_names` has recorded.
//! 4. `statement` runs the rules of `xql-relations` and DataFusion's optimizer.
//! 5. `plan_handle`: the planner that the session had before plans the result. So DataFusion's nodes run in the host, with its memory pool
//!    and its files. The finished plan returns as a handle.
//! 6. `local_exec`: a plan with nodes of this project runs in this library, over nodes of the host (`host_exec`). Its `pool` reserves the
//!    memory of the host (`host_memory`).
//!
//! `copy_to` keeps the target of `COPY ... TO`, which only the host can decode, and `format` its file format. `planner` is the struct that
//! the host imports, `registry` has the state of registered sessions, and `explain` shows plans of the host. `abi` has two structs of
//! `datafusion-ffi` with private fields, `local_session` the settings of a session for this library, and `runtime` threads, stacks and
//! built-in functions.

mod abi;
mod codec;
mod copy_to;
mod explain;
mod format;
mod functions;
mod host_exec;
mod host_memory;
mod local_exec;
mod local_session;
mod plan_handle;
mod planner;
mod pool;
mod registry;
mod reunify;
mod runtime;
mod statement;
mod statement_names;
mod statement_parameters;
mod statement_table;
mod statement_text;

pub use abi::{QueryPlanner, check_planner_layout};
pub use codec::{logical_codec, pending_handles, physical_codec};
pub use functions::record_builtins;
pub use plan_handle::capture_rule;
pub use planner::{is_planner_of, new_planner};
pub use registry::{
    decode_function, has_other_planner, is_registered, optimize, record_statement, set_option, shares_ctes, show_plan,
};
pub use statement_text::{HostStatement, StatementText};
pub use xql_relations::{Observer, observe, shutdown_observers};
