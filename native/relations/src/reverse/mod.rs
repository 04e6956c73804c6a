//! Gradients by row: reverse mode over the plan.
//!
//! A scalar subquery is a function of every cell of the relations that it reads. Its derivative by each row's cell of one column
//! is swept down from its value: the plan below is cut into *regions*, in which every row comes from one row of each leaf (joins,
//! filters, projections), and *reductions* between them (aggregates). Cotangents go through a region row by row, and from a
//! region to a leaf as sums over the leaf's rows.
//!
//! `variable` numbers the rows of the relation in which the column originates, `region` makes a plan whose rows still have what
//! a sweep reads, `partials` has the partial derivative of an aggregate by one of its rows, and `sweep` carries cotangents.

mod partials;
mod region;
mod sweep;
mod variable;

pub use region::{Region, joined};
pub use sweep::{gradient, value};
pub use variable::{RowVariable, has_node, origin_of};
