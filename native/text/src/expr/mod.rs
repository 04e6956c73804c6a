//! Expressions as text.
//!
//! An expression is written so that it is parsed as the same tree: sums and products are then computed in the same order. What cannot be
//! written is an error that names it. `precedence` has operators and parentheses, `literals` values and types, `expression` all else.

mod expression;
mod literals;
mod precedence;

pub use expression::{Scope, atom_sql, grouping_sets_sql, list_sql, order_sql, sql_with_precedence, to_sql};
pub use literals::{cast_sql, is_constant, type_sql};
pub use precedence::Precedence;
