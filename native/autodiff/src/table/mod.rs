//! What is known of each function, operator and expression of DataFusion and of each special function: one line each, by family.
//!
//! A line has all of it: partial derivatives, domain and kinks, where the function is NULL, finite and smooth, which sign its
//! values have, and what the algebra may make of it. It is found by the function that a query calls, and holds for
//! DataFusion's own function of that name only, or the special function of this project, never for another one registered under it.

mod arithmetic;
mod choices;
mod described;
mod elementary;
mod families;
mod line;
mod lookup;
mod record_batch;
mod refused;
mod rounding;
mod special;

pub use line::{Algebraic, Choice, Line, Nulls, Range, Sign, Treatment};
#[cfg(test)]
pub use lookup::all;
pub use lookup::{
    Known, known, of_function, of_negation, of_operator, refusal_of, refusal_of_higher_order, replacement_of,
};
pub use record_batch::rule_table;
pub use refused::{DECIMAL, TEXT, TIME};
