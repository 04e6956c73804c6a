//! What is known of each function, operator and expression of DataFusion and of each special function: one line each, by family.
//!
//! A line has all of it: partial derivatives, domain and kinks, where the function is NULL, finite and smooth, which sign its
//! values have, and what the algebra may make of it. It is found by the function that a query calls, and holds for
//! DataFusion's own function of that name only, or the special function of this project, never for another one registered under it.

mod arithmetic;
mod choices;
mod descriptions;
mod elementary;
mod families;
mod line;
mod lookup;
mod random;
mod record_batch;
mod refusals;
mod rounding;
mod special;

pub use line::{Algebraic, Choice, Line, Nulls, Range, Sign, Treatment};
#[cfg(test)]
pub use lookup::entries;
pub use lookup::{
    TableEntry, find_entry, find_function, find_negation, find_operator, refusal_of, refusal_of_higher_order,
    replacement_of,
};
pub use record_batch::rule_table;
pub use refusals::{DECIMAL, TEXT, TIME};
