//! Special functions that DataFusion lacks, as scalar functions.
//!
//! ```text
//! for function in xql_special::functions() {
//!     ctx.register_udf(function);
//! }
//! ```
//!
//! All of them take numbers and give Float64, NULL where an argument is NULL, and NaN where they are not defined. Random numbers take whole
//! ones, a seed and keys, of which they are functions like any other. They go by the names
//! that SciPy, JAX, NumPy or PostgreSQL have for them; several names of one function are several functions here, each of which a
//! session may have or not. What they are computed by is in `values`, a line for each; derivatives are no concern of this crate.
//!
//! The modules are layers: `exponentials`, `gammas`, `normal`, and `philox` and `random` compute, `values` has the names, `function` is what DataFusion calls.

mod exponentials;
mod function;
mod gammas;
mod normal;
mod philox;
mod random;
mod values;

pub use function::{canonical, function, functions};
