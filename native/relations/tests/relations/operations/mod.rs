//! What derivatives cost, counted in operations of the optimised physical plan.

mod count;
mod formulas;
mod gradients;
mod relations;
