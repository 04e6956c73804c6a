//! Statements in a text: tokens, calls, and the context of calls.

mod call_context;
mod calls;
mod materialization;
mod statements;
mod tokens;

pub use call_context::{ColumnSpellings, column_spellings, required_precedence, unnamed_items};
pub use calls::{SourceCall, find_calls, with_sites};
pub use materialization::with_materialization;
pub use statements::{ParsedStatement, outer_query, parse_generated, parse_one};
pub use tokens::Source;
