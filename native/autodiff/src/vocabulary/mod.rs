//! Shared vocabulary: types, columns, DataFusion's own functions, opaque expressions of another engine, the differential operators, the SQL
//! of rules, and messages.

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
