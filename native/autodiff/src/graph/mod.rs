//! An expression as a directed acyclic graph: every distinct sub-expression is one node.

mod construct;
mod export;
mod failures;
mod import;
mod intern;
mod layers;
mod program;

pub use construct::branches;
pub use export::export;
pub use failures::never_fails;
pub use import::{import, import_program};
pub use intern::{Graph, NodeId, operand};
pub use layers::{Layers, Root, Threshold, layer};
pub use program::to_program;
