//! Which nodes are one relation, and which compute the same.
//!
//! DataFusion's own equality of plans leaves out the tables that scans read, and takes two queries of one text for one.
//!
//! ```sql
//! WITH a AS (SELECT 1.0 AS v), b AS (SELECT 1.0 AS v) ...   -- compute the same, and are two relations
//! ```
//!
//! A [`table`] is identified by its source. A query is identified by where it was written: by its leaves
//! ([`occurrence`]) and its [`plan_path`] within a named query. A [`derived`] table has no name that other queries
//! could read.

mod derived;
mod occurrence;
mod plan_path;
mod relation;
mod table;

pub use derived::{DerivedTables, NameKind, kind_of, noted_name};
pub use occurrence::{IdentityKey, Occurrence, is_equal, is_same, occurrences};
pub use plan_path::PlanPath;
pub use relation::Relation;
pub use table::is_unclear;
