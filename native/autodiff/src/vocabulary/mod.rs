//! What everything above speaks of: types, columns, DataFusion's own functions, expressions that keep words of another engine, the
//! differential operators, the SQL that rules are written in, and messages.

pub mod columns;
pub mod fields;
pub mod functions;
pub mod messages;
pub mod opaque_expr;
pub mod plural;
pub mod refusals;
pub mod syntax;
#[cfg(test)]
pub mod testing;
pub mod transform;
pub mod types;
