//! What an execution of a sum leaves to the next one. In a loop most keys are the same every time, and so are the factors of data.

use arrow::array::{Array, ArrayRef};
use datafusion_execution::memory_pool::MemoryReservation;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::compute::Rows;
use crate::dense::Filled;
use crate::places::Places;
use crate::read::held_by;

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

/// The keys and the positions of rows.
#[derive(Debug)]
pub struct Left {
    /// How many rows each input had.
    counts: Vec<usize>,
    keys: Vec<ArrayRef>,
    rows: Positioned,
}

/// The positions of rows, and for each term the arrays of the two inputs that are multiplied, if there are any.
#[derive(Debug, Clone)]
pub struct Positioned {
    /// The positions.
    pub places: Arc<Places>,
    /// The arrays.
    pub arrays: Option<Vec<[Arc<Filled>; 2]>>,
}

impl Kept {
    /// What the last execution has left. It is not accounted for any more.
    pub fn take(&self) -> Option<Left> {
        self.state().encoded.take().map(|encoded| encoded.left)
    }

    /// Leaves something to the next execution, if there is memory for it.
    pub fn leave(&self, sides: &[Rows], rows: &Positioned, reservation: &MemoryReservation) {
        let mut state = self.state();
        if !std::mem::replace(&mut state.is_executed, true) {
            return;
        }
        let keys: Vec<_> = sides.iter().flat_map(Rows::all_keys).cloned().collect();
        let arrays = rows.arrays.iter().flatten().flatten().map(|array| array.memory()).sum::<usize>();
        let reservation = reservation.new_empty();
        if reservation.try_grow(held_by(&keys) + rows.places.memory() + arrays).is_ok() {
            let left = Left { counts: sides.iter().map(|side| side.count).collect(), keys, rows: rows.clone() };
            state.encoded = Some(Encoded { left, _reservation: reservation });
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Left {
    /// What is left, if the keys of these rows are those that there were.
    pub fn of(self, sides: &[Rows]) -> Option<Positioned> {
        let mut before = self.keys.iter();
        let mut keys = sides.iter().flat_map(Rows::all_keys);
        let are_same = keys.all(|key| before.next().is_some_and(|before| is_same(key, before)));
        let counts = sides.iter().map(|side| side.count);
        (are_same && before.next().is_none() && counts.eq(self.counts)).then_some(self.rows)
    }
}

/// Whether the values of two arrays are the same. Floats have values that are equal and not the same.
fn is_same(one: &ArrayRef, other: &ArrayRef) -> bool {
    Arc::ptr_eq(one, other)
        || one.to_data().ptr_eq(&other.to_data())
        || one.data_type() == other.data_type() && !one.data_type().is_floating() && one == other
}
