//! Statements as they were written: their tokens, where these stand, and the calls among them.

mod calls;
mod materialized;
mod places;
mod statements;
mod tokens;

pub use calls::{WrittenCall, calls, with_sites};
pub use materialized::with_materialization;
pub use places::{Spellings, needed_at, spellings, unnamed_items};
pub use statements::{Written, outer_query, parse_one, parse_written};
pub use tokens::Source;
