//! Gradients by row.

mod checkpoints;
mod memory;
mod named;
mod recursions;
mod shapes;
