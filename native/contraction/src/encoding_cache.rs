//! The cache of what an execution has encoded, for the next execution of the same plan. In a loop most keys are the same in every
//! iteration, and so are factors that come from data.

use datafusion_execution::memory_pool::MemoryReservation;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::coo::Factor;
use crate::dense::DenseMatrix;
use crate::digest::{FactorDigest, KeyDigest};
use crate::join_index::JoinIndex;

/// The cache of one plan.
#[derive(Debug, Default)]
pub struct EncodingCache(Mutex<CacheState>);

#[derive(Debug, Default)]
struct CacheState {
    /// Whether the plan has been executed. The first execution stores nothing, since most plans are executed once.
    is_executed: bool,
    entry: Option<CacheEntry>,
}

/// A cached encoding and the reservation of its memory.
#[derive(Debug)]
struct CacheEntry {
    encoding: CachedEncoding,
    _reservation: MemoryReservation,
}

/// The codes of rows, and the digest of the keys that they encode. The keys themselves would hold the rows of the last execution.
#[derive(Debug)]
pub struct CachedEncoding {
    keys: KeyDigest,
    rows: EncodedRows,
}

/// The codes of rows, and for each term the history of the two factors that are multiplied.
#[derive(Debug)]
pub struct EncodedRows {
    /// The codes.
    pub index: Arc<JoinIndex>,
    /// The histories, empty where no dense matrices have been built.
    pub factors: Vec<[FactorHistory; 2]>,
    /// Whether the encoding is stored for the next execution.
    pub will_be_stored: bool,
}

/// The history of a factor over executions.
#[derive(Debug, Clone, Default)]
pub enum FactorHistory {
    /// It has not been seen.
    #[default]
    Unseen,
    /// It has been seen once.
    Seen(FactorDigest),
    /// It has been the same twice, as data are. Its matrix is cached.
    Constant(Arc<DenseMatrix>),
    /// It has changed, and is never cached again.
    Varies,
}

impl FactorHistory {
    /// Returns the cached matrix, if the factor equals its factor.
    pub fn cached_matrix(&self, factor: &Factor) -> Option<Arc<DenseMatrix>> {
        match self {
            Self::Constant(matrix) if matrix.has_equal_factor(factor) => Some(Arc::clone(matrix)),
            _ => None,
        }
    }

    /// Returns the history after an execution that has built this matrix from this factor.
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
    /// Removes and returns what the last execution has stored. Its memory is no longer reserved.
    pub fn take(&self) -> Option<CachedEncoding> {
        self.lock().entry.take().map(|entry| entry.encoding)
    }

    /// Marks the plan as executed, and returns whether it was before.
    pub fn mark_executed(&self) -> bool {
        std::mem::replace(&mut self.lock().is_executed, true)
    }

    /// Stores an encoding for the next execution, if there is memory for it.
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
    /// Returns the codes, if the keys are the same.
    pub fn if_keys_match(self, keys: &KeyDigest) -> Option<EncodedRows> {
        (*keys == self.keys).then_some(self.rows)
    }
}
