//! Gradients by row.

mod checkpoints;
mod correlated;
mod memory;
mod named;
mod recursions;
mod shapes;
