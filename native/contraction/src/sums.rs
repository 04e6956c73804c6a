//! From the rows of the inputs of a sum to its own.

use arrow::array::{ArrayRef, Float64Array, RecordBatch, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::SchemaRef;
use datafusion_common::Result;
use datafusion_execution::memory_pool::MemoryReservation;
use std::sync::Arc;

use crate::chosen::{Choice, Meet, Sums};
use crate::compute::{Rows, in_common, joined};
use crate::dense::{Right, is_meant};
use crate::kernel::{Kernel, Work};
use crate::keys::{NONE, Positions};
use crate::option::Contractions;
use crate::pairs::{Pairs, Way};
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
        let majors = of_left.count + inner_right.count;
        if self.reservation.try_grow(runs::bytes(left.count + right.count, majors)).is_err() {
            return Ok(None);
        }
        let [rows, columns] = [of_left.count, of_right.count];
        let left_runs = Runs::of((&of_left.of_rows, rows), (&inner_left.of_rows, inner_left.count), &left.factor);
        let right_runs =
            Runs::of((&inner_right.of_rows, inner_right.count), (&of_right.of_rows, columns), &right.factor);
        let pairs = met(&left_runs, &right_runs);
        let all = (rows * columns) as f64 * inner_left.count as f64;
        let work = Work { sizes: [rows, inner_left.count, columns], pairs, filling: pairs / all };
        let meant = !self.spec.single && is_meant(left_runs.traits, right_runs.traits);
        let bytes = Right::bytes(inner_left.count, columns);
        let kernel = work.kernel(self.how, meant, || self.reservation.try_grow(bytes).is_ok());
        let keys = [left.keys(&of_left)?, right.keys(&of_right)?];
        let way = match kernel {
            Kernel::Dense => Way::Dense(as_array(&right_runs)),
            Kernel::Sparse => {
                if self.reservation.try_grow(Sparse::bytes(columns)).is_err() {
                    return Ok(None);
                }
                Way::Sparse(right_runs, Sparse::new(columns, self.spec.single))
            }
        };
        let pairs = Pairs::new(left_runs, way, keys, Arc::clone(&self.schema));
        Ok(Some((Computed::Pairs(Box::new(pairs)), Some(Taken { kernel, work }))))
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
        let (Some(inner), Some([p, of_a]), Some([q, of_b])) = (
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
        let p = if outer == Some(a) { with_a_place(p) } else { p };
        let q = if outer == Some(b) { with_a_place(q) } else { q };
        let Some(groups) = sides[by].positions()? else { return Ok(None) };
        let majors = p.count + q.count;
        let needed = runs::bytes(sides[a].count + sides[b].count, majors) + Sums::bytes(groups.count);
        if self.reservation.try_grow(needed).is_err() {
            return Ok(None);
        }
        let left = Runs::of((&of_a.of_rows, p.count), (&inner_a.of_rows, inner_a.count), &sides[a].factor);
        let right = Runs::of((&of_b.of_rows, q.count), (&inner_b.of_rows, inner_b.count), &sides[b].factor);
        let factor = sides[by].factor.clone();
        let choice = Choice { pairs: [p, q], groups, factor, meet };
        let sizes = [left.majors(), left.minors, right.majors()];
        let [steps, products] = [choice.steps(&left, &right) as f64, met_within(&left, &right)];
        let work = Work { sizes, pairs: steps.min(products), filling: left.filling() * right.filling() };
        let bytes = Right::bytes(left.minors, right.majors());
        let meant = is_meant(left.traits, right.traits);
        let kernel = work.kernel(self.how, meant, || self.reservation.try_grow(bytes).is_ok());
        let sums = match kernel {
            Kernel::Dense => choice.by_arrays(&left, &right),
            Kernel::Sparse if steps <= products => choice.by_runs(&left, &right),
            Kernel::Sparse => {
                let columns = right.majors();
                let needed = runs::bytes(right.len(), inner_b.count) + Sparse::bytes(columns);
                if self.reservation.try_grow(needed).is_err() {
                    return Ok(None);
                }
                let right = Runs::of((&inner_b.of_rows, inner_b.count), (&of_b.of_rows, columns), &sides[b].factor);
                choice.by_products(&left, &right)
            }
        };
        let rows = self.rows_of(&sides[by], &choice.groups, &sums)?;
        Ok(Some((Computed::Rows(rows), Some(Taken { kernel, work }))))
    }

    /// The groups that have rows, with their sums.
    fn rows_of(&self, rows: &Rows, groups: &Positions, sums: &Sums) -> Result<Vec<RecordBatch>> {
        let there = sums.there.iter().enumerate().filter(|(_, there)| **there);
        let there: Vec<_> = there.map(|(group, _)| group as u32).collect();
        let keys = rows.keys(groups)?;
        let mut batches = vec![];
        for part in there.chunks(1 << 16) {
            let values = part.iter().map(|group| {
                let group = *group as usize;
                sums.known[group].then(|| sums.sums[group])
            });
            let values: Float64Array = values.collect();
            let part = UInt32Array::from(part.to_vec());
            let mut columns: Vec<(usize, ArrayRef)> = vec![];
            for (place, key) in &keys {
                columns.push((*place, take(key, &part, None)?));
            }
            columns.sort_by_key(|(place, _)| *place);
            let mut columns: Vec<_> = columns.into_iter().map(|(_, column)| column).collect();
            columns.push(Arc::new(values));
            batches.push(RecordBatch::try_new(Arc::clone(&self.schema), columns)?);
        }
        Ok(batches)
    }
}

/// How many pairs of rows two sides have in common.
fn met(left: &Runs, right: &Runs) -> f64 {
    let lengths = left.by_minor().into_iter().enumerate();
    lengths.map(|(inner, count)| count as f64 * right.run(inner).len() as f64).sum()
}

/// The same of two sides whose inner position is the other one of both.
fn met_within(left: &Runs, right: &Runs) -> f64 {
    left.by_minor().into_iter().zip(right.by_minor()).map(|(a, b)| a as f64 * b as f64).sum()
}

fn as_array(right: &Runs) -> Right {
    let entries = (0..right.majors())
        .flat_map(|inner| right.run(inner).iter().map(move |entry| (inner, entry.minor as usize, entry)));
    Right::new((right.majors(), right.minors), entries, right.traits)
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
