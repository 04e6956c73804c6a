//! What everything above speaks of: types, columns, DataFusion's own functions, the operators and messages.

pub mod columns;
pub mod functions;
pub mod messages;
pub mod operator;
pub mod types;
