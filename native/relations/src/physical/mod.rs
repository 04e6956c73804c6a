//! Physical nodes of our own. They import nothing of this crate, and other processes do not know them.
//!
//! - [`SharedExec`] reads a relation that is computed once.
//! - [`UniqueRowsExec`] passes rows on, and fails if the number of a row comes twice.
//! - [`ObservedExec`] reads the rows of a step of a recursive query, and tells an observer of them.

mod computed;
mod observed;
mod shared;
mod unique_rows;

pub use observed::{ObservedExec, Observer};
pub use shared::{Shared, SharedExec};
pub use unique_rows::UniqueRowsExec;
