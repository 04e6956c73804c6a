//! The derivatives of functions and operators.
//!
//! A rule is written as a mathematician would: the partial derivatives in SQL, in terms of the function's inputs and of
//! its own output `Ω`, so that a derivative reuses what the query computes anyway. A rule of the table holds for
//! DataFusion's own function of that name only, never for another one registered under it; users lay rules of their own
//! over the table.

mod custom;
mod evaluate;
mod formula;
mod rule;
mod rule_cache;
mod rule_set;
mod scope;

pub use crate::vocabulary::syntax::Signature;
pub use formula::{Formula, Value};
pub use rule::Rule;
pub(crate) use rule::{Bindings, Derivative};
pub use rule_cache::{negation_rule, operator_rule};
pub use rule_set::Rules;
