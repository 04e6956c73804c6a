//! Gradients by row: reverse mode over the plan.
//!
//! A scalar subquery is a function of every cell of the relations that it reads. Its derivative by each row's cell of one column
//! is swept down from its value: the plan below is cut into *regions*, in which every row comes from one row of each leaf (joins,
//! filters, projections), and *stages* between them (groups, windows, limits). Cotangents go through a region row by row, and from a
//! region to a leaf as sums over the leaf's rows.
//!
//! `variable` numbers the rows of the relation in which the column originates, and `nodes` finds what reads them. `linearize` makes
//! *regions* of plans, whose rows still have what a sweep reads (`region`), and *stages* of what lies between regions, computed once
//! (`stage`). `partials` has the partial derivative of an aggregate by one of its rows, `cotangents` the cotangents of columns and of
//! rows, and `sweep` carries them from the value to the variable.

mod cotangents;
mod lateral;
mod linearize;
mod nodes;
mod partials;
mod region;
mod stage;
mod sweep;
mod variable;

pub use cotangents::RowCotangents;
pub use lateral::with_joins_for_lateral;
pub use linearize::Linearizer;
pub use region::{Region, joined};
pub use stage::Stages;
pub use sweep::gradients;
pub use variable::{Reference, RowVariable};
