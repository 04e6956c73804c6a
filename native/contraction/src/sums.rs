//! From the rows of the inputs of a sum to its own.

use arrow::array::{Array, BooleanArray, Float64Array, RecordBatch};
use arrow::buffer::NullBuffer;
use arrow::compute::filter_record_batch;
use arrow::datatypes::SchemaRef;
use datafusion_common::Result;
use datafusion_execution::memory_pool::MemoryReservation;
use std::sync::Arc;

use crate::chosen::{Choice, Meet, Sums};
use crate::compute::{Rows, in_common, joined};
use crate::dense::{Block, Filled};
use crate::entries::Entries;
use crate::kernel::{Kernel, Work};
use crate::keys::{NONE, Positions};
use crate::option::Contractions;
use crate::pairs::{self, Pairs, Way};
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
        let rows: usize = inputs.iter().flatten().map(RecordBatch::num_rows).sum();
        if rows >= NONE as usize / 8 || self.reservation.try_grow(ROW * rows).is_err() {
            return Ok(None);
        }
        let sides = inputs.iter().enumerate().map(|(side, batches)| Rows::of(self.spec, side, batches));
        let sides: Vec<_> = sides.collect::<Result<_>>()?;
        match (self.spec.kind, sides.as_slice()) {
            (Kind::Pairs, [left, right]) if left.count > 0 && right.count > 0 => self.pairs([left, right], inputs),
            (Kind::Chosen { by, outer }, [..]) if sides[by].count > 0 => self.chosen(by, outer, &sides, inputs),
            _ => Ok(Some((Computed::Rows(vec![]), None))),
        }
    }

    fn pairs(&self, sides: [&Rows; 2], inputs: &[Vec<RecordBatch>]) -> Result<Option<(Computed, Option<Taken>)>> {
        let Some(inner) = joined(self.spec, [0, 1], inputs)? else { return Ok(None) };
        let [inner_left, inner_right] = in_common(inner);
        let [left, right] = sides;
        let (Some(of_left), Some(of_right)) = (left.positions()?, right.positions()?) else { return Ok(None) };
        let left_rows = Entries { major: &of_left, minor: &inner_left, factor: &left.factor };
        let right_rows = Entries { major: &inner_right, minor: &of_right, factor: &right.factor };
        let sizes = [of_left.count, inner_left.count, of_right.count];
        let pairs = met(left_rows, right_rows);
        let all = sizes.iter().map(|size| *size as f64).product::<f64>();
        let work = Work { sizes, pairs, filling: pairs / all };
        let keys = [left.keys(&of_left)?, right.keys(&of_right)?];
        let arrays = match self.spec.single {
            true => None,
            false => self.arrays(&work, [left_rows, right_rows], pairs::BLOCK, true),
        };
        let (way, kernel) = match arrays {
            Some([left, right]) => (Way::Dense(left, right), Kernel::Dense),
            None => {
                let runs = runs::bytes(left.count + right.count, sizes[0] + sizes[1]);
                if self.reservation.try_grow(runs + Sparse::bytes(sizes[2])).is_err() {
                    return Ok(None);
                }
                let sparse = Sparse::new(sizes[2], self.spec.single);
                (Way::Sparse(Runs::of(left_rows), Runs::of(right_rows), sparse), Kernel::Sparse)
            }
        };
        let pairs = Pairs::new(way, keys, Arc::clone(&self.schema));
        Ok(Some((Computed::Pairs(Box::new(pairs)), Some(Taken { kernel, work }))))
    }

    /// The rows of two sides as arrays, if that takes least, has the meaning of the rows, and there is memory for them.
    fn arrays(&self, work: &Work, [left, right]: [Entries; 2], block: usize, finite: bool) -> Option<[Filled; 2]> {
        let [rows, inner, columns] = work.sizes;
        let bytes = Filled::bytes(rows, inner)
            + Filled::bytes(inner, columns)
            + Block::bytes(columns, block.min(rows * columns));
        if work.kernel(self.how) == Kernel::Sparse || self.reservation.try_grow(bytes).is_err() {
            return None;
        }
        let arrays = [left, right].map(Filled::of);
        let is_meant = arrays[0].is_meant(&arrays[1], finite);
        if !is_meant {
            self.reservation.shrink(bytes);
        }
        is_meant.then_some(arrays)
    }

    fn chosen(
        &self,
        by: usize,
        outer: Option<usize>,
        sides: &[Rows],
        inputs: &[Vec<RecordBatch>],
    ) -> Result<Option<(Computed, Option<Taken>)>> {
        let others: Vec<_> = (0..sides.len()).filter(|side| *side != by).collect();
        let [a, b] = [others[0], others[1]];
        let (Some(inner), Some([mut p, mut of_a]), Some([mut q, mut of_b])) = (
            joined(self.spec, [a, b], inputs)?,
            joined(self.spec, [by, a], inputs)?,
            joined(self.spec, [by, b], inputs)?,
        ) else {
            return Ok(None);
        };
        let meet = match outer {
            None => Meet::Common,
            Some(outer) if outer == b => Meet::Either(0, of_a.has_rows()),
            Some(_) => Meet::Either(1, of_b.has_rows()),
        };
        let [inner_a, inner_b] = in_common(inner);
        // A row whose partner may be missing stays, though its key be NULL and have no position.
        if outer == Some(a) {
            p = with_a_place(p);
            of_a.count = p.count;
        }
        if outer == Some(b) {
            q = with_a_place(q);
            of_b.count = q.count;
        }
        let Some(groups) = sides[by].positions()? else { return Ok(None) };
        if self.reservation.try_grow(Sums::bytes(groups.count)).is_err() {
            return Ok(None);
        }
        let left = Entries { major: &of_a, minor: &inner_a, factor: &sides[a].factor };
        let right = Entries { major: &of_b, minor: &inner_b, factor: &sides[b].factor };
        let choice = Choice { pairs: [p, q], groups, factor: sides[by].factor.clone(), meet };
        let Some((sums, taken)) = self.sums_of(&choice, left, right) else { return Ok(None) };
        let rows = self.rows_of(&sides[by], &choice.groups, sums)?;
        Ok(Some((Computed::Rows(rows), Some(taken))))
    }

    /// The sums that rows choose. None if there is no memory for them.
    fn sums_of(&self, choice: &Choice, left: Entries, right: Entries) -> Option<(Sums, Taken)> {
        let [steps, products] = [choice.steps(left, right) as f64, met(left, right.turned())];
        let sizes = [left.major.count, left.minor.count, right.major.count];
        let work = Work { sizes, pairs: steps.min(products), filling: left.filling() * right.filling() };
        // Sums that are few beside the rows are looked up in the order of the rows.
        let block = pairs::BLOCK.max(4 * choice.groups.of_rows.len());
        let taken = |kernel| Taken { kernel, work };
        if let Some([left, right]) = self.arrays(&work, [left, right.turned()], block, choice.factor.is_finite()) {
            return Some((choice.by_arrays(&left, &right, block), taken(Kernel::Dense)));
        }
        let rows = left.major.of_rows.len() + right.major.of_rows.len();
        let bytes = runs::bytes(rows, sizes.iter().sum()) + Sparse::bytes(right.major.count);
        self.reservation.try_grow(bytes).ok()?;
        let sums = match steps <= products {
            true => choice.by_runs(&Runs::of(left), &Runs::of(right)),
            false => choice.by_products(&Runs::of(left), &Runs::of(right.turned())),
        };
        Some((sums, taken(Kernel::Sparse)))
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

/// How many pairs of rows two sides have in common, by the other position of the left one and the first of the right one.
fn met(left: Entries, right: Entries) -> f64 {
    left.by_minor().into_iter().zip(right.by_major()).map(|(a, b)| f64::from(a) * f64::from(b)).sum()
}

/// The same with a position of their own for rows that have none.
fn with_a_place(mut positions: Positions) -> Positions {
    if !positions.of_rows.contains(&NONE) {
        return positions;
    }
    let place = positions.count as u32;
    positions.of_rows.iter_mut().filter(|position| **position == NONE).for_each(|position| *position = place);
    positions.count += 1;
    positions
}
