//! From a call of `grad`, `jvp` or `vjp` to the expression that replaces it.

mod differentiate;
mod differentiation;
mod errors;
mod variable;

pub use differentiate::differentiate;
pub use differentiation::{Differentiation, Seed};
