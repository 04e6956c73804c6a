//! From the rows of the inputs of a sum to its own.

use arrow::array::{Array, BooleanArray, Float64Array, RecordBatch};
use arrow::buffer::NullBuffer;
use arrow::compute::filter_record_batch;
use arrow::datatypes::SchemaRef;
use datafusion_common::{Result, internal_err};
use datafusion_execution::memory_pool::MemoryReservation;
use std::sync::Arc;

use crate::chosen::{Choice, Sums};
use crate::compute::Rows;
use crate::dense::{Block, Filled};
use crate::entries::Factor;
use crate::kept::{Kept, Left, Positioned};
use crate::kernel::{Kernel, Work};
use crate::keys::{NONE, Positions};
use crate::option::Contractions;
use crate::pairs::{self, Pairs, Way};
use crate::places::Places;
use crate::runs::{self, Runs};
use crate::sparse::Sparse;
use crate::spec::{Contraction, Kind};

/// The rows of a sum, one batch after the other.
pub enum Computed {
    /// Those of all pairs of groups.
    Pairs(Box<Pairs>),
    /// All of them.
    Rows(Vec<RecordBatch>),
}

/// What is needed beside the rows.
pub struct Setting<'s> {
    /// What the sum is over.
    pub spec: &'s Contraction,
    /// How it is to be computed.
    pub how: Contractions,
    /// What accounts for memory.
    pub reservation: &'s MemoryReservation,
    /// What the last execution has left.
    pub kept: &'s Kept,
    /// The columns of the result.
    pub schema: SchemaRef,
}

/// What has been done.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Taken {
    /// The way.
    pub kernel: Kernel,
    /// What it took.
    pub work: Work,
}

/// The memory of a row for its positions and its factor, without that of runs.
const ROW: usize = 64;

impl Setting<'_> {
    /// The sums, and how they are computed. None if the rows are to be handed over: there is no memory for them as arrays, or their keys
    /// have no positions.
    pub fn computed(&self, inputs: &[Vec<RecordBatch>]) -> Result<Option<(Computed, Option<Taken>)>> {
        let left = self.kept.take();
        let rows: usize = inputs.iter().flatten().map(RecordBatch::num_rows).sum();
        if rows >= NONE as usize / 8 || self.reservation.try_grow(ROW * rows).is_err() {
            return Ok(None);
        }
        let sides = inputs.iter().enumerate().map(|(side, batches)| Rows::of(self.spec, side, batches));
        let sides: Vec<_> = sides.collect::<Result<_>>()?;
        let must_have_rows = match self.spec.kind {
            Kind::Pairs => 0..2,
            Kind::Chosen { by, .. } => by..by + 1,
        };
        if sides[must_have_rows].iter().any(|side| side.count == 0) {
            return Ok(Some((Computed::Rows(vec![]), None)));
        }
        let Some(mut rows) = self.positioned(left, &sides)? else { return Ok(None) };
        let computed = match self.spec.kind {
            Kind::Pairs => self.pairs(&sides, &mut rows)?,
            Kind::Chosen { by, .. } => self.chosen(by, &sides, &mut rows)?,
        };
        self.kept.leave(&sides, &rows, self.reservation);
        Ok(computed)
    }

    /// The positions of rows: those that the last execution has left if there are any. None if a key has none.
    fn positioned(&self, left: Option<Left>, sides: &[Rows]) -> Result<Option<Positioned>> {
        if let Some(left) = left.and_then(|left| left.of(sides)) {
            return Ok(Some(left));
        }
        let places = Places::of(self.spec, sides)?;
        Ok(places.map(|places| Positioned { places: Arc::new(places), arrays: None }))
    }

    fn pairs(&self, sides: &[Rows], rows: &mut Positioned) -> Result<Option<(Computed, Option<Taken>)>> {
        let places = Arc::clone(&rows.places);
        let [left, right] = [&sides[0], &sides[1]];
        let keys = [left.keys(&places.outer[0])?, right.keys(&places.outer[1])?];
        let is_filled = !self.spec.single && self.fill(sides, rows, pairs::BLOCK, true);
        let (way, kernel) = match &rows.arrays {
            Some(arrays) if is_filled => (Way::Dense(arrays.clone()), Kernel::Dense),
            _ => {
                let [groups, _, columns] = places.work.sizes;
                let runs = runs::bytes(left.count + right.count, groups + places.work.sizes[1]);
                if self.reservation.try_grow(runs + Sparse::bytes(columns)).is_err() {
                    return Ok(None);
                }
                let sparse = Sparse::new(columns, self.spec.single);
                let runs = [Runs::of(places.left(), &left.factor), Runs::of(places.right(), &right.factor)];
                (Way::Sparse(runs, sparse), Kernel::Sparse)
            }
        };
        let pairs = Pairs::new(way, keys, Arc::clone(&self.schema));
        Ok(Some((Computed::Pairs(Box::new(pairs)), Some(Taken { kernel, work: places.work }))))
    }

    /// Makes arrays of the two inputs that are multiplied. False if runs take less, if arrays have not the meaning of the rows, or if there
    /// is no memory for them.
    fn fill(&self, sides: &[Rows], rows: &mut Positioned, block: usize, finite: bool) -> bool {
        let Positioned { places, arrays } = rows;
        let [left, inner, right] = places.work.sizes;
        let bytes =
            Filled::bytes(left, inner) + Filled::bytes(inner, right) + Block::bytes(right, block.min(left * right));
        let before = arrays.take();
        if places.work.kernel(self.how) == Kernel::Sparse || self.reservation.try_grow(bytes).is_err() {
            return false;
        }
        let [left, right] = self.spec.multiplied().map(|side| &sides[side].factor);
        let [of_left, of_right] = places.layouts();
        let [left_before, right_before] = before.map_or([None, None], |arrays| arrays.map(Some));
        let filled = [
            Filled::of(of_left, places.left(), left, left_before),
            Filled::of(of_right, places.right(), right, right_before),
        ];
        let is_meant = filled[0].is_meant(&filled[1], finite);
        if is_meant {
            *arrays = Some(filled);
        } else {
            self.reservation.shrink(bytes);
        }
        is_meant
    }

    fn chosen(&self, by: usize, sides: &[Rows], rows: &mut Positioned) -> Result<Option<(Computed, Option<Taken>)>> {
        let places = Arc::clone(&rows.places);
        let Some(choice) = &places.choice else { return internal_err!("nothing says which sums are wanted") };
        if self.reservation.try_grow(Sums::bytes(choice.groups.count)).is_err() {
            return Ok(None);
        }
        let factor = &sides[by].factor;
        // Sums that are few beside the rows are looked up in the order of the rows.
        let block = pairs::BLOCK.max(4 * choice.groups.of_rows.len());
        let is_filled = self.fill(sides, rows, block, factor.is_finite());
        let (sums, kernel) = match &rows.arrays {
            Some([left, right]) if is_filled => (choice.by_arrays(factor, left, right, block), Kernel::Dense),
            _ => match self.by_runs(&places, choice, sides, factor) {
                Some(sums) => (sums, Kernel::Sparse),
                None => return Ok(None),
            },
        };
        let rows = self.rows_of(&sides[by], &choice.groups, sums)?;
        Ok(Some((Computed::Rows(rows), Some(Taken { kernel, work: places.work }))))
    }

    /// The sums that rows choose, by runs. None if there is no memory for them.
    fn by_runs(&self, places: &Places, choice: &Choice, sides: &[Rows], factor: &Factor) -> Option<Sums> {
        let (left, right) = (places.left(), places.right());
        let rows = left.major.of_rows.len() + right.major.of_rows.len();
        let sizes = places.work.sizes;
        let bytes = runs::bytes(rows, sizes.iter().sum()) + Sparse::bytes(sizes[2]);
        self.reservation.try_grow(bytes).ok()?;
        let [of_left, of_right] = self.spec.multiplied().map(|side| &sides[side].factor);
        let left = Runs::of(left, of_left);
        Some(match places.has_few_steps {
            true => choice.by_runs(factor, &left, &Runs::of(right.turned(), of_right)),
            false => choice.by_products(factor, &left, &Runs::of(right, of_right)),
        })
    }

    /// The groups that have rows, with their sums.
    fn rows_of(&self, rows: &Rows, groups: &Positions, sums: Sums) -> Result<Vec<RecordBatch>> {
        let there = BooleanArray::from(sums.there);
        let mut batches = vec![];
        let mut first = 0;
        for mut columns in rows.keys_in_parts(groups)? {
            let part = first..first + columns.first().map_or(groups.count, |(_, key)| key.len());
            columns.sort_by_key(|(place, _)| *place);
            let mut columns: Vec<_> = columns.into_iter().map(|(_, column)| column).collect();
            // A part has memory of its own, as slices of all values would each count as the whole.
            let known = sums.known[part.clone()].iter().copied().collect::<NullBuffer>();
            columns.push(Arc::new(Float64Array::new(sums.sums[part.clone()].to_vec().into(), Some(known))));
            let batch = RecordBatch::try_new(Arc::clone(&self.schema), columns)?;
            batches.push(filter_record_batch(&batch, &there.slice(part.start, part.len()))?);
            first = part.end;
        }
        // The last of them is given out first.
        batches.reverse();
        Ok(batches)
    }
}
