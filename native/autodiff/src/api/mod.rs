//! From a call of `grad`, `jvp` or `vjp` to the expression that replaces it.

mod differentiate;
mod differentiation;
mod errors;
mod inactivity;
mod smoothness;
mod variable;

pub use differentiate::{differentiate, differentiate_batch};
pub use differentiation::{Differentiation, Seed};
pub use inactivity::{Varies, inactive_condition};
pub use smoothness::is_smooth;
