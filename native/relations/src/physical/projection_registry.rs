//! Expressions over the rows of a relation that several readers evaluate, and their cached values.
//!
//! The next layer of a network reads `1 / (1 + exp(-s))` over the sums `s` of a layer, and the derivatives of both read
//! it again. Without a cache, each reader would evaluate it for the same rows.

use arrow::array::ArrayRef;
use datafusion_common::Result;
use datafusion_execution::memory_pool::MemoryReservation;
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_plan::metrics::Gauge;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use xql_contraction::memory_size;

use super::lock::locked;

/// A value of each row of a relation.
#[derive(Debug)]
pub struct Value {
    number: usize,
    readers: AtomicUsize,
}

/// The expressions over the columns of a relation that readers evaluate.
#[derive(Debug, Default)]
pub struct ProjectionRegistry(Mutex<HashMap<Arc<dyn PhysicalExpr>, Arc<Value>>>);

impl ProjectionRegistry {
    /// Registers a further reader of an expression over the columns of the relation.
    pub fn value(&self, expr: Arc<dyn PhysicalExpr>) -> Arc<Value> {
        let mut known = locked(&self.0);
        let number = known.len();
        let value = known.entry(expr).or_insert_with(|| Arc::new(Value { number, readers: AtomicUsize::new(0) }));
        value.readers.fetch_add(1, Ordering::Relaxed);
        Arc::clone(value)
    }
}

/// The values of the rows that have been computed.
#[derive(Debug)]
pub struct ProjectionCache {
    values: Mutex<CachedValues>,
    reservation: MemoryReservation,
    /// Shows the most bytes that have been held, with those of the rows.
    held: Gauge,
    rows: usize,
}

/// What has been computed, by the number of the value.
type CachedValues = HashMap<(usize, BatchIndex), Arc<Mutex<CachedValue>>>;

/// A batch of a partition.
pub type BatchIndex = (usize, usize);

/// A value of the rows of a batch.
#[derive(Debug, Default)]
struct CachedValue {
    array: Option<ArrayRef>,
    read: usize,
}

impl ProjectionCache {
    /// Creates an empty cache. `rows` is the reservation of the rows, which also accounts for the values, and `held`
    /// the metric of both.
    pub fn new(rows: &MemoryReservation, held: Gauge) -> Self {
        Self { values: Mutex::default(), reservation: rows.new_empty(), held, rows: rows.size() }
    }

    /// Returns a value for the rows of a batch, and computes it unless another reader has done so. Each reader calls
    /// this once. The value is kept until the last reader has called, if there is enough memory.
    ///
    /// # Errors
    /// Those of the computation.
    pub fn get(
        &self,
        value: &Value,
        batch: BatchIndex,
        compute: impl FnOnce() -> Result<ArrayRef>,
    ) -> Result<ArrayRef> {
        let readers = value.readers.load(Ordering::Relaxed);
        if readers < 2 {
            return compute();
        }
        let computed = Arc::clone(locked(&self.values).entry((value.number, batch)).or_default());
        // A second reader that comes meanwhile waits for the first.
        let mut computed = locked(&computed);
        computed.read += 1;
        let array = match computed.array.take() {
            Some(array) => {
                self.reservation.shrink(memory_size(std::slice::from_ref(&array)));
                array
            }
            None => compute()?,
        };
        if computed.read < readers && self.reservation.try_grow(memory_size(std::slice::from_ref(&array))).is_ok() {
            self.held.set_max(self.rows + self.reservation.size());
            computed.array = Some(Arc::clone(&array));
        }
        Ok(array)
    }
}
