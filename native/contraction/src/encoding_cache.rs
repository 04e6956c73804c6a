//! What an execution of a sum leaves to the next one. In a loop most keys are the same every time, and so are the factors of data.

use datafusion_execution::memory_pool::MemoryReservation;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::coo::Factor;
use crate::dense::DenseMatrix;
use crate::digest::{FactorDigest, KeyDigest};
use crate::join_index::JoinIndex;

/// What the last execution of a plan has left.
#[derive(Debug, Default)]
pub struct EncodingCache(Mutex<CacheState>);

#[derive(Debug, Default)]
struct CacheState {
    /// Whether the plan has been executed. The first execution leaves nothing, as most plans have no other.
    is_executed: bool,
    entry: Option<CacheEntry>,
}

/// The rows of an execution by their positions.
#[derive(Debug)]
struct CacheEntry {
    encoding: CachedEncoding,
    _reservation: MemoryReservation,
}

/// What the keys are known by, and the positions of rows. The keys themselves would hold the rows that they are of.
#[derive(Debug)]
pub struct CachedEncoding {
    keys: KeyDigest,
    rows: EncodedRows,
}

/// The positions of rows, and for each term what is known of the factors of the two inputs that are multiplied.
#[derive(Debug)]
pub struct EncodedRows {
    /// The positions.
    pub index: Arc<JoinIndex>,
    /// The factors, none where no arrays have been made of them.
    pub factors: Vec<[FactorHistory; 2]>,
    /// Whether they are left to the next execution.
    pub will_be_stored: bool,
}

/// What is known of a factor from the executions before.
#[derive(Debug, Clone, Default)]
pub enum FactorHistory {
    /// Nothing.
    #[default]
    Unseen,
    /// It has been seen once.
    Seen(FactorDigest),
    /// It has been the same twice, as data are, and is kept as an array.
    Constant(Arc<DenseMatrix>),
    /// It has been another one, and so nothing of it is kept.
    Varies,
}

impl FactorHistory {
    /// The array of a factor, if it is the same again.
    pub fn cached_matrix(&self, factor: &Factor) -> Option<Arc<DenseMatrix>> {
        match self {
            Self::Constant(matrix) if matrix.has_equal_factor(factor) => Some(Arc::clone(matrix)),
            _ => None,
        }
    }

    /// What is known when this array has been made of a factor.
    pub fn update(self, matrix: &Arc<DenseMatrix>, factor: &Factor) -> Self {
        match self {
            Self::Unseen => Self::Seen(FactorDigest::new(factor)),
            Self::Seen(before) if before == FactorDigest::new(factor) => Self::Constant(Arc::clone(matrix)),
            Self::Constant(before) if Arc::ptr_eq(&before, matrix) => Self::Constant(before),
            Self::Seen(_) | Self::Constant(_) | Self::Varies => Self::Varies,
        }
    }

    fn memory_size(&self) -> usize {
        match self {
            Self::Constant(matrix) => matrix.memory_size(),
            Self::Unseen | Self::Seen(_) | Self::Varies => 0,
        }
    }
}

impl EncodingCache {
    /// What the last execution has left. It is not accounted for any more.
    pub fn take(&self) -> Option<CachedEncoding> {
        self.lock().entry.take().map(|entry| entry.encoding)
    }

    /// Whether something may be left: the first execution leaves nothing.
    pub fn mark_executed(&self) -> bool {
        std::mem::replace(&mut self.lock().is_executed, true)
    }

    /// Leaves something to the next execution, if there is memory for it.
    pub fn store(&self, keys: KeyDigest, rows: EncodedRows, reservation: &MemoryReservation) {
        let matrices = rows.factors.iter().flatten().map(FactorHistory::memory_size).sum::<usize>();
        let reservation = reservation.new_empty();
        if reservation.try_grow(rows.index.memory_size() + matrices).is_ok() {
            self.lock().entry = Some(CacheEntry { encoding: CachedEncoding { keys, rows }, _reservation: reservation });
        }
    }

    fn lock(&self) -> MutexGuard<'_, CacheState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CachedEncoding {
    /// What is left, if the keys are those that there were.
    pub fn if_keys_match(self, keys: &KeyDigest) -> Option<EncodedRows> {
        (*keys == self.keys).then_some(self.rows)
    }
}
