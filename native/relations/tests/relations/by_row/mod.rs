//! Gradients by row.

mod memory;
mod named;
mod shapes;
