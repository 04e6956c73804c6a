//! Derivatives in the sessions of a library that was compiled apart: those of DataFusion's stock wheel.
//!
//! Such a host offers its plans to a query planner and its nodes to codecs, as C structs, and takes no rule for logical plans. So the
//! planner of this crate is the place where a statement is differentiated and optimized:
//!
//! 0. `statement_text`: a statement that reads a relation several times is planned here, before the host writes the relation out for each,
//!    which gets a `statement_table` instead.
//! 1. `crossing`: the host writes the analyzed plan as bytes. Its tables and our functions cross as numbers.
//! 2. `functions`: DataFusion's own functions are those of this library again, of which the rules of derivatives know.
//! 3. `identity`: what is one relation is one again, by what `names` knows of the statements.
//! 4. `statement`: the rules of `xql-relations` and DataFusion's optimizer make the plan of the derivative.
//! 5. `capture`: the planner that the session had before plans it. So DataFusion's nodes run in the host, in its memory pool and
//!    with its files. The finished plan comes back as a number.
//! 6. `local`: a plan with nodes of this project runs here, over the tables of the host, which are `lent`. Its memory is a `loan` of the
//!    host, too, of which the `pool` of the plan keeps account.
//!
//! `around` keeps what a statement does with its rows, which the host alone knows, and `format` has the files of `COPY ... TO`.
//! `planner` is the struct that the host imports, `registered` what is known of its session, and `explain` shows the plan of the host.
//! `abi` has the two structs of `datafusion-ffi` that are closed to others, and `guest` what a session is made of here.

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
mod statement_table;
mod statement_text;

pub use abi::QueryPlanner;
pub use codec::{logical_codec, pending_handles, physical_codec};
pub use functions::record_builtins;
pub use plan_handle::capture_rule;
pub use planner::{is_planner_of, new_planner};
pub use registry::{
    decode_function, has_other_planner, is_registered, optimize, record_statement, set_option, shares_ctes, show_plan,
};
pub use statement_text::{HostStatement, StatementText};
pub use xql_relations::{Observer, observe, stop_telling};
