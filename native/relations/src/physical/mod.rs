//! Physical nodes of our own. They import nothing of this crate, and other processes do not know them.
//!
//! - [`SharedExec`] reads a relation that is computed once. Projections above several readers share what they
//!   call functions for: [`asked()`].
//! - [`UniqueRowsExec`] passes rows on, and fails if the number of a row comes twice.
//! - [`TapeExec`] runs a recursive query whose iterations are kept, and [`AdjointExec`] goes back through them. In both, the plan of one
//!   iteration reads by [`GivenExec`] what it is given. Of the iterations all are kept or some (`past`, `checkpoints`). Those between are
//!   computed again, from plans that give the same rows each time: [`InOrder`]. Of one that has come to a fixed point, the last
//!   iteration is kept (`ends`) and gone back through again and again (`fixed_point`). Projections of iterations measure nothing: [`Unmeasured`].
//! - [`ObservedExec`] reads the rows of a step of a recursive query, and tells an observer of them.
//! - [`stop_telling`] ends that for good.

mod adjoint;
mod asked;
mod batch;
mod checkpoints;
mod computed;
mod ends;
mod fixed_point;
mod frame;
mod given;
mod in_order;
mod iterations;
mod lock;
mod matching;
mod observed;
mod past;
mod projected;
mod series;
mod shared;
mod sums;
mod sweep;
mod tape;
mod told;
mod unique_rows;
mod values;
mod wanted;

pub use adjoint::AdjointExec;
pub use asked::asked;
pub use computed::Kept;
pub use fixed_point::FixedPoint;
pub use given::{GivenExec, Id, is_given};
pub use in_order::InOrder;
pub use observed::{Observed, ObservedExec, Observer};
pub use past::Keeps;
pub use projected::Unmeasured;
pub use shared::{Shared, SharedExec};
pub use sweep::{BEFORE, FIRST};
pub use tape::{Query, TapeExec};
pub use told::stop_telling;
pub use unique_rows::UniqueRowsExec;
