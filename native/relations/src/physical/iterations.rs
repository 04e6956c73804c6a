//! Computing the iterations of a recursive query one by one.

use arrow::array::{ArrayRef, RecordBatch, UInt64Array, new_empty_array};
use arrow::compute::concat;
use arrow::datatypes::{DataType, SchemaRef};
use datafusion_common::cast::as_uint64_array;
use datafusion_common::hash_utils::{RandomState, create_hashes};
use datafusion_common::{Result, internal_err};
use datafusion_execution::TaskContext;
use datafusion_physical_plan::ExecutionPlan;
use datafusion_physical_plan::execution_plan::collect_partitioned;
use std::hash::{DefaultHasher, Hasher};
use std::sync::{Arc, Weak};
use xql_contraction::memory_size;

use super::batch::batch_of;
use super::batch_scan::{BindInputs, Id};
use super::iteration_context::IterationFrame;

/// The parameters for computing an iteration from the rows before.
#[derive(Debug)]
pub struct Steps {
    /// The identifier of the rows before.
    pub work: Id,
    /// The plan of the rows after those, with one more column that numbers them.
    pub step: Arc<dyn ExecutionPlan>,
    /// The outer frame, which all iterations read.
    pub around: Option<Weak<IterationFrame>>,
    /// The columns of the query.
    pub schema: SchemaRef,
}

/// The rows of an iteration.
#[derive(Debug, Clone)]
pub struct State {
    /// The rows, with the columns of the query.
    pub batches: Arc<[RecordBatch]>,
    /// The numbers that they have within the iteration, in order.
    pub numbers: UInt64Array,
    /// The bytes that they take.
    pub size: usize,
}

impl State {
    /// Returns how many they are.
    pub fn count(&self) -> usize {
        self.numbers.len()
    }

    /// Returns a hash of the rows and their order.
    pub fn fingerprint(&self) -> Result<u64> {
        let mut all = DefaultHasher::new();
        for batch in self.batches.iter().filter(|batch| batch.num_columns() > 0) {
            let mut hashes = vec![0; batch.num_rows()];
            create_hashes(batch.columns(), &RandomState::with_seed(0), &mut hashes)?;
            hashes.iter().for_each(|hash| all.write_u64(*hash));
        }
        all.write_usize(self.count());
        Ok(all.finish())
    }
}

impl Steps {
    /// Executes a plan whose last column numbers the rows.
    pub async fn rows(&self, plan: Arc<dyn ExecutionPlan>, context: &Arc<TaskContext>) -> Result<State> {
        let (mut rows, mut numbers) = (vec![], vec![]);
        for batch in collect_partitioned(plan, Arc::clone(context)).await?.into_iter().flatten() {
            let mut columns = batch.columns().to_vec();
            let Some(number) = columns.pop() else { return internal_err!("rows have no numbers") };
            numbers.push(number);
            rows.push(batch_of(&self.schema, columns, batch.num_rows())?);
        }
        let numbers: Vec<_> = numbers.iter().map(AsRef::as_ref).collect();
        let numbers: ArrayRef = if numbers.is_empty() { new_empty_array(&DataType::UInt64) } else { concat(&numbers)? };
        let size =
            rows.iter().map(|batch| memory_size(batch.columns())).sum::<usize>() + memory_size(&[Arc::clone(&numbers)]);
        Ok(State { batches: rows.into(), numbers: as_uint64_array(&numbers)?.clone(), size })
    }

    /// Computes the rows after these, and returns them with their frame.
    pub async fn after(&self, before: &State, context: &Arc<TaskContext>) -> Result<(Arc<IterationFrame>, State)> {
        let frame = IterationFrame::new(self.work, Arc::clone(&before.batches), self.around.clone());
        let rows = self.rows(frame.bound(Arc::clone(&self.step))?, context).await?;
        Ok((frame, rows))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::Int64Array;

    fn state(batches: &[&[i64]]) -> Result<State> {
        let rows = |values: &&[i64]| {
            let column: ArrayRef = Arc::new(Int64Array::from(values.to_vec()));
            Ok(RecordBatch::try_from_iter([("x", column)])?)
        };
        let count = batches.iter().map(|values| values.len() as u64).sum();
        let batches: Arc<[RecordBatch]> = batches.iter().map(rows).collect::<Result<_>>()?;
        Ok(State { batches, numbers: UInt64Array::from_iter_values(0..count), size: 0 })
    }

    #[test]
    fn rows_in_another_order_have_another_fingerprint() -> Result<()> {
        let fingerprint = |batches: &[&[i64]]| state(batches)?.fingerprint();
        let rows = fingerprint(&[&[1, 2, 3]])?;
        assert_eq!(fingerprint(&[&[1], &[2, 3]])?, rows);
        for other in [&[2, 1, 3][..], &[1, 2], &[1, 2, 3, 3], &[1, 2, 4]] {
            assert_ne!(fingerprint(&[other])?, rows, "{other:?}");
        }
        Ok(())
    }
}
