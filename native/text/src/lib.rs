//! Derivatives of SQL text.

mod context;
mod derive;
mod expand;
mod expr;
mod functions;
mod names;
mod relation;
mod select;
mod source;
mod splice;

pub use context::Catalog;
pub use expand::{differentiate, expand};
