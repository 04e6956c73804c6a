//! The reverse sweep through the iterations of a recursive query.
//!
//! Iterations are visited from the last to the first. The cotangent of an iteration's rows is what comes from outside,
//! plus what the iteration after it has contributed. The plan of one step maps it to contributions to the rows before,
//! which are carried on to the next visit, and to relations that all iterations read, which are summed up over all
//! visits.

use arrow::array::{Array, RecordBatch};
use arrow::compute::{SortOptions, concat_batches, sort_to_indices, take_record_batch};
use arrow::datatypes::SchemaRef;
use datafusion_common::Result;
use datafusion_common::cast::{as_float64_array, as_uint64_array};
use datafusion_execution::TaskContext;
use datafusion_execution::memory_pool::MemoryReservation;
use datafusion_physical_plan::ExecutionPlan;
use datafusion_physical_plan::execution_plan::collect_partitioned;
use datafusion_physical_plan::metrics::Count;
use std::sync::Arc;
use xql_contraction::memory_size;

use super::batch_scan::{BindInputs, Id};
use super::iteration_context::IterationFrame;
use super::sums::Sums;
use super::tape::Tape;

/// The mark of contributions to the rows of the iteration before.
pub const BEFORE: u64 = 0;
/// The mark of contributions to the first rows of the recursive query.
pub const FIRST: u64 = 1;

/// The parameters of a sweep through the iterations.
pub struct IterationSweep {
    /// The name of the recursive query.
    pub name: String,
    /// The plan of one step: maps the cotangents of an iteration's rows to its contributions.
    pub step: Arc<dyn ExecutionPlan>,
    /// The input of the step: the identifier of the cotangents, and their columns.
    pub incoming: (Id, SchemaRef),
    /// The columns of contributions.
    pub schema: SchemaRef,
    /// The memory of the cotangents.
    pub reservation: MemoryReservation,
    /// How many iterations have been computed again.
    pub computed: Count,
    /// How often cotangents have been carried back through the last step.
    pub turns: Count,
    /// The execution.
    pub context: Arc<TaskContext>,
}

impl IterationSweep {
    /// Runs the sweep. Returns the sums of the contributions of all iterations, by their mark.
    pub async fn through_all(&self, tape: &Tape, mut outside: Outside) -> Result<Vec<Sums>> {
        let width = self.incoming.1.fields().len() - 1;
        let (mut carried, mut totals, mut past) = (Sums::new(width), vec![], tape.past(&self.context));
        for number in (0..tape.count()).rev() {
            outside.take_from(tape.before(number), &mut carried)?;
            let total = std::mem::replace(&mut carried, Sums::new(width));
            if total.is_empty() {
                continue;
            }
            let iteration = past.iteration(number).await?;
            let rows = total.batch(&self.incoming.1, None, Some(&iteration.numbers))?;
            match &iteration.frame {
                None => self.total_of(FIRST, &mut totals).add(&rows, 0, 0)?,
                Some(frame) => {
                    for batch in self.contributions(&self.step, rows, frame).await? {
                        self.add(&batch, &mut carried, &mut totals)?;
                    }
                }
            }
            let held = totals.iter().chain([&carried]).map(Sums::size).sum::<usize>() + outside.size;
            self.reservation.try_resize(held)?;
        }
        self.computed.add(past.computed());
        Ok(totals)
    }

    /// Returns the sums of the contributions with this mark.
    pub fn total_of<'t>(&self, to: u64, totals: &'t mut Vec<Sums>) -> &'t mut Sums {
        let to = to as usize;
        while totals.len() <= to {
            totals.push(Sums::new(self.schema.fields().len() - 2));
        }
        &mut totals[to]
    }

    /// Adds the contributions of an iteration to `carried` or `totals`, by their marks.
    pub fn add(&self, batch: &RecordBatch, carried: &mut Sums, totals: &mut Vec<Sums>) -> Result<()> {
        let to = as_uint64_array(batch.column(0))?;
        let (mut from, count) = (0, batch.num_rows());
        // Contributions with one mark come in one slice, or in few.
        while from < count {
            let of = to.value(from);
            let until = (from..count).find(|row| to.value(*row) != of).unwrap_or(count);
            let sums = if of == BEFORE { &mut *carried } else { self.total_of(of, totals) };
            sums.add(&batch.slice(from, until - from), 1, 0)?;
            from = until;
        }
        Ok(())
    }

    /// Executes the plan of a step for these cotangents of an iteration's rows, in the context of the iteration.
    pub async fn contributions(
        &self,
        step: &Arc<dyn ExecutionPlan>,
        incoming: RecordBatch,
        around: &Arc<IterationFrame>,
    ) -> Result<Vec<RecordBatch>> {
        let frame = IterationFrame::new(self.incoming.0, vec![incoming], Some(Arc::downgrade(around)));
        let plan = frame.bound(Arc::clone(step))?;
        Ok(collect_partitioned(plan, Arc::clone(&self.context)).await?.concat())
    }
}

/// The cotangents that the rows of all iterations have from outside, in the order of the rows.
pub struct Outside {
    rows: Option<RecordBatch>,
    /// Their size in bytes, until the last one has been taken.
    size: usize,
}

impl Outside {
    /// Creates those of some rows.
    ///
    /// # Errors
    /// If they have no numbers.
    pub fn try_new(batches: Vec<RecordBatch>) -> Result<Self> {
        let Some(first) = batches.first() else { return Ok(Self { rows: None, size: 0 }) };
        let rows = concat_batches(&first.schema(), &batches)?;
        let options = SortOptions { descending: false, nulls_first: true };
        let order = sort_to_indices(rows.column(0), Some(options), None)?;
        let rows = take_record_batch(&rows, &order)?;
        Ok(Self { size: memory_size(rows.columns()), rows: Some(rows) })
    }

    /// Returns the last one of the rows that are left whose cotangents contribute something.
    pub fn contributing(&self) -> Result<Option<u64>> {
        let Some(rows) = &self.rows else { return Ok(None) };
        let numbers = as_uint64_array(rows.column(0))?;
        let mut last = None;
        for column in &rows.columns()[1..] {
            let known = as_float64_array(column)?.iter().zip(numbers);
            last = last
                .max(known.filter(|(size, _)| size.is_some_and(|size| size != 0.0)).filter_map(|(_, row)| row).max());
        }
        Ok(last)
    }

    /// Takes the rows from a number on, and adds them to those that are counted from there.
    pub fn take_from(&mut self, first: u64, sums: &mut Sums) -> Result<()> {
        let Some(rows) = &mut self.rows else { return Ok(()) };
        let numbers = as_uint64_array(rows.column(0))?;
        let known = numbers.null_count();
        let from = known + numbers.values()[known..].partition_point(|number| *number < first);
        sums.add(&rows.slice(from, rows.num_rows() - from), 0, first)?;
        *rows = rows.slice(0, from);
        Ok(())
    }
}
