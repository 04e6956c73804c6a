//! What an execution of a sum leaves to the next one. In a loop most keys are the same every time, and so are the factors of data.

use datafusion_execution::memory_pool::MemoryReservation;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::dense::Filled;
use crate::digest::{Digest, FactorDigest};
use crate::entries::Factor;
use crate::places::Places;

/// What the last execution of a plan has left.
#[derive(Debug, Default)]
pub struct Kept(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Whether the plan has been executed. The first execution leaves nothing, as most plans have no other.
    is_executed: bool,
    encoded: Option<Encoded>,
}

/// The rows of an execution by their positions.
#[derive(Debug)]
struct Encoded {
    left: Left,
    _reservation: MemoryReservation,
}

/// What the keys are known by, and the positions of rows. The keys themselves would hold the rows that they are of.
#[derive(Debug)]
pub struct Left {
    keys: Digest,
    rows: Positioned,
}

/// The positions of rows, and for each term what is known of the factors of the two inputs that are multiplied.
#[derive(Debug)]
pub struct Positioned {
    /// The positions.
    pub places: Arc<Places>,
    /// The factors, none where no arrays have been made of them.
    pub factors: Vec<[Before; 2]>,
    /// Whether they are left to the next execution.
    pub is_left: bool,
}

/// What is known of a factor from the executions before.
#[derive(Debug, Clone, Default)]
pub enum Before {
    /// Nothing.
    #[default]
    Unseen,
    /// It has been seen once.
    Seen(FactorDigest),
    /// It has been the same twice, as data are, and is kept as an array.
    Data(Arc<Filled>),
    /// It has been another one, and so nothing of it is kept.
    Varies,
}

impl Before {
    /// The array of a factor, if it is the same again.
    pub fn array(&self, factor: &Factor) -> Option<Arc<Filled>> {
        match self {
            Self::Data(array) if array.is_same(factor) => Some(Arc::clone(array)),
            _ => None,
        }
    }

    /// What is known when this array has been made of a factor.
    pub fn after(self, array: &Arc<Filled>, factor: &Factor) -> Self {
        match self {
            Self::Unseen => Self::Seen(FactorDigest::of(factor)),
            Self::Seen(before) if before == FactorDigest::of(factor) => Self::Data(Arc::clone(array)),
            Self::Data(before) if Arc::ptr_eq(&before, array) => Self::Data(before),
            Self::Seen(_) | Self::Data(_) | Self::Varies => Self::Varies,
        }
    }

    fn memory(&self) -> usize {
        match self {
            Self::Data(array) => array.memory(),
            Self::Unseen | Self::Seen(_) | Self::Varies => 0,
        }
    }
}

impl Kept {
    /// What the last execution has left. It is not accounted for any more.
    pub fn take(&self) -> Option<Left> {
        self.state().encoded.take().map(|encoded| encoded.left)
    }

    /// Whether something may be left: the first execution leaves nothing.
    pub fn keeps(&self) -> bool {
        std::mem::replace(&mut self.state().is_executed, true)
    }

    /// Leaves something to the next execution, if there is memory for it.
    pub fn leave(&self, keys: Digest, rows: Positioned, reservation: &MemoryReservation) {
        let arrays = rows.factors.iter().flatten().map(Before::memory).sum::<usize>();
        let reservation = reservation.new_empty();
        if reservation.try_grow(rows.places.memory() + arrays).is_ok() {
            self.state().encoded = Some(Encoded { left: Left { keys, rows }, _reservation: reservation });
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Left {
    /// What is left, if the keys are those that there were.
    pub fn of(self, keys: &Digest) -> Option<Positioned> {
        (*keys == self.keys).then_some(self.rows)
    }
}
