//! Values that several readers of a relation compute from its rows.
//!
//! `1 / (1 + exp(-s))` over the sums of a layer is what the next layer reads, and what the derivatives of both read again. Each reader
//! would compute it for itself, from the same rows.

use arrow::array::{ArrayRef, RecordBatch};
use datafusion_common::Result;
use datafusion_execution::memory_pool::MemoryReservation;
use datafusion_physical_expr::PhysicalExpr;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use xql_contraction::held_by;

use super::locked;

/// A value of each row of a relation.
#[derive(Debug)]
pub struct Value {
    number: usize,
    expr: Arc<dyn PhysicalExpr>,
    readers: AtomicUsize,
}

impl Value {
    /// The expression over the columns of the relation.
    pub fn expr(&self) -> &Arc<dyn PhysicalExpr> {
        &self.expr
    }

    fn of(&self, batch: &RecordBatch) -> Result<ArrayRef> {
        self.expr.evaluate(batch)?.into_array(batch.num_rows())
    }
}

/// The values that readers ask a relation for.
#[derive(Debug, Default)]
pub struct Asked(Mutex<Vec<Arc<Value>>>);

impl Asked {
    /// What an expression over the columns of the relation has, for one reader more.
    pub fn value(&self, expr: Arc<dyn PhysicalExpr>) -> Arc<Value> {
        let mut asked = locked(&self.0);
        let known = asked.iter().find(|value| value.expr.as_ref() == expr.as_ref()).cloned();
        let value = known.unwrap_or_else(|| {
            let value = Arc::new(Value { number: asked.len(), expr, readers: AtomicUsize::new(0) });
            asked.push(Arc::clone(&value));
            value
        });
        value.readers.fetch_add(1, Ordering::Relaxed);
        value
    }
}

/// The values that have been computed, which are kept as long as the rows.
#[derive(Debug)]
pub struct Values {
    computed: Mutex<HashMap<Place, Arc<Mutex<Option<ArrayRef>>>>>,
    reservation: MemoryReservation,
}

/// The number of a value, and of a batch in a partition.
type Place = (usize, usize, usize);

impl Values {
    /// None yet, in memory that this accounts for.
    pub fn new(reservation: MemoryReservation) -> Self {
        Self { computed: Mutex::default(), reservation }
    }

    /// A value of the rows of a batch, which stands at this place of a partition. It is kept if there are other readers, and if there
    /// is memory.
    pub fn get(&self, value: &Value, batch: &RecordBatch, (partition, index): (usize, usize)) -> Result<ArrayRef> {
        if value.readers.load(Ordering::Relaxed) < 2 {
            return value.of(batch);
        }
        let place = Arc::clone(locked(&self.computed).entry((value.number, partition, index)).or_default());
        // A second reader that comes meanwhile waits for the first.
        let mut computed = locked(&place);
        if let Some(computed) = computed.as_ref() {
            return Ok(Arc::clone(computed));
        }
        let array = value.of(batch)?;
        if self.reservation.try_grow(held_by(std::slice::from_ref(&array))).is_ok() {
            *computed = Some(Arc::clone(&array));
        }
        Ok(array)
    }
}
