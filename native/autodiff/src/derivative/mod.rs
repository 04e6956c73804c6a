//! From a call of `grad`, `jvp` or `vjp` to the expression that replaces it.

mod differentiate;
mod differentiation;
mod errors;
mod inactive;
mod smoothness;
mod variable;

pub use differentiate::{differentiate, differentiate_together};
pub use differentiation::{Differentiation, Seed};
pub use inactive::{Varies, inactive};
pub use smoothness::is_smooth;
