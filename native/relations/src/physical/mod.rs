//! Physical nodes of our own. They import nothing of this crate, and other processes do not know them.
//!
//! - [`SharedScanExec`] reads a relation that is computed once. Projections above several readers share expressions
//!   with function calls: [`share_projections()`].
//! - [`UniqueRowsExec`] passes rows on, and fails if a row number occurs twice.
//! - [`RecursiveTapeExec`] runs a recursive query whose iterations are kept, and [`AdjointExec`] propagates cotangents
//!   back through them. In both, the plan of one iteration reads its input rows by a [`BatchScanExec`]. All iterations
//!   are kept, or some (`tape`, `checkpoints`). The others are computed again, from plans that give the same rows each
//!   time ([`PreserveOrder`]). For a query that has converged to a fixed point, only the last iteration is kept
//!   (`ends`), and the adjoint iterates on it (`fixed_point`). Projections in iterations have no metrics
//!   ([`WithoutMetrics`]).
//! - [`ObservedExec`] scans the work table of a recursive query, and notifies an observer of each step.
//!   [`shutdown_observers`] stops all notifications.

mod adjoint;
mod batch;
mod batch_scan;
mod checkpoints;
mod ends;
mod fixed_point;
mod iterated_projection;
mod iteration_context;
mod iterations;
mod lock;
mod matching;
mod materialize;
mod observed;
mod observer_guard;
mod projection_cache;
mod projection_registry;
mod recursive_tape;
mod row_filter;
mod sequential_coalesce;
mod series;
mod shared_scan;
mod sums;
mod sweep;
mod tape;
mod unique_rows;

pub use adjoint::AdjointExec;
pub use batch_scan::{BatchScanExec, Id, is_given};
pub use fixed_point::FixedPoint;
pub use iterated_projection::WithoutMetrics;
pub use lock::locked;
pub use materialize::RetentionPolicy;
pub use observed::{Observed, ObservedExec, Observer};
pub use observer_guard::shutdown_observers;
pub use projection_cache::share_projections;
pub use recursive_tape::{Query, RecursiveTapeExec};
pub use sequential_coalesce::PreserveOrder;
pub use shared_scan::{Shared, SharedScanExec};
pub use sweep::{BEFORE, FIRST};
pub use tape::Keeps;
pub use unique_rows::UniqueRowsExec;
