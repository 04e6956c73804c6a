//! ProjectionCache that several readers of a relation compute from its rows.
//!
//! `1 / (1 + exp(-s))` over the sums of a layer is what the next layer reads, and what the derivatives of both read again. Each reader
//! would compute it for itself, from the same rows.

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

/// The values that readers ask a relation for, by expressions over its columns.
#[derive(Debug, Default)]
pub struct ProjectionRegistry(Mutex<HashMap<Arc<dyn PhysicalExpr>, Arc<Value>>>);

impl ProjectionRegistry {
    /// Returns the value that an expression over the columns of the relation has, for one reader more.
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
    places: Mutex<Places>,
    reservation: MemoryReservation,
    /// Shows the most bytes that have been held, with those of the rows.
    held: Gauge,
    rows: usize,
}

/// What has been computed, by the number of the value.
type Places = HashMap<(usize, Place), Arc<Mutex<Computed>>>;

/// A batch of a partition.
pub type Place = (usize, usize);

/// A value of the rows of a batch.
#[derive(Debug, Default)]
struct Computed {
    array: Option<ArrayRef>,
    read: usize,
}

impl ProjectionCache {
    /// None yet. They are accounted for with the rows, whose reservation this is, and shown with them.
    pub fn new(rows: &MemoryReservation, held: Gauge) -> Self {
        Self { places: Mutex::default(), reservation: rows.new_empty(), held, rows: rows.size() }
    }

    /// Returns a value of the rows of a batch, which is computed unless another reader has done so. Each reader asks for it once. It is
    /// kept until the last one has, if there is memory.
    ///
    /// # Errors
    /// Those of the computation.
    pub fn get(&self, value: &Value, place: Place, compute: impl FnOnce() -> Result<ArrayRef>) -> Result<ArrayRef> {
        let readers = value.readers.load(Ordering::Relaxed);
        if readers < 2 {
            return compute();
        }
        let computed = Arc::clone(locked(&self.places).entry((value.number, place)).or_default());
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
