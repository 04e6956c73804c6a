//! Expressions as text.
//!
//! An expression is written in the form that it has: a text is read back as the same tree, so that sums and products are computed in
//! the same order. What cannot be written is an error that names it. `binding` has texts that may be operands, `literals` values and
//! types, `expression` all else.

mod binding;
mod expression;
mod literals;

pub use binding::Precedence;
pub use expression::{Scope, atom_sql, grouping_sets_sql, list_sql, order_sql, sql_with_precedence, to_sql};
pub use literals::{cast_sql, is_constant, type_sql};
