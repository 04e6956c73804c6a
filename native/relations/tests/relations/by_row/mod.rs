//! Gradients by row.

mod memory;
mod named;
mod recursions;
mod shapes;
