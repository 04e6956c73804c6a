//! From the rows of the inputs of a sum to its own.

use arrow::array::{Array, BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::datatypes::SchemaRef;
use datafusion_common::{Result, internal_err};
use datafusion_execution::memory_pool::MemoryReservation;
use std::sync::Arc;

use crate::chosen::{Choice, Sums};
use crate::common_places::places_of;
use crate::compute::Rows;
use crate::dense::{Block, Filled};
use crate::digest::Digest;
use crate::entries::Factor;
use crate::kept::{Before, Kept, Left, Positioned};
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
        // Of keys that cannot be hashed nothing is left.
        let keys = self.kept.keeps().then(|| Digest::of(&sides).ok()).flatten();
        let Some(mut rows) = self.positioned(left, &sides, keys.as_ref())? else { return Ok(None) };
        let computed = match self.spec.kind {
            Kind::Pairs => self.pairs(&sides, &mut rows)?,
            Kind::Chosen { by, .. } => self.chosen(by, &sides, &mut rows)?,
        };
        if let Some(keys) = keys {
            self.kept.leave(keys, rows, self.reservation);
        }
        Ok(computed)
    }

    /// The positions of rows: those that the last execution has left if there are any. None if a key has none.
    fn positioned(&self, left: Option<Left>, sides: &[Rows], keys: Option<&Digest>) -> Result<Option<Positioned>> {
        let Some(keys) = keys else {
            let places = Places::of(self.spec, sides)?.map(Arc::new);
            return Ok(places.map(|places| Positioned { places, factors: vec![], is_left: false }));
        };
        if let Some(rows) = left.and_then(|left| left.of(keys)) {
            return Ok(Some(rows));
        }
        let places = places_of(self.spec, sides, keys)?;
        Ok(places.map(|places| Positioned { places, factors: vec![], is_left: true }))
    }

    fn pairs(&self, sides: &[Rows], rows: &mut Positioned) -> Result<Option<(Computed, Option<Taken>)>> {
        let places = Arc::clone(&rows.places);
        let [left, right] = [&sides[0], &sides[1]];
        let keys = [left.keys(&places.outer[0])?, right.keys(&places.outer[1])?];
        let is_single = self.spec.terms.iter().any(|term| term.single);
        let arrays = if is_single { None } else { self.fill(sides, rows, pairs::BLOCK, &[]) };
        let (way, kernel) = match arrays {
            Some(arrays) => (Way::Dense(arrays), Kernel::Dense),
            None => match self.runs(&places, sides) {
                Some(terms) => (Way::Sparse(terms), Kernel::Sparse),
                None => return Ok(None),
            },
        };
        let pairs = Pairs::new(way, keys, self.spec.outputs.clone(), Arc::clone(&self.schema));
        Ok(Some((Computed::Pairs(Box::new(pairs)), Some(Taken { kernel, work: places.work }))))
    }

    /// The runs of both inputs for each term. None if there is no memory for them.
    fn runs(&self, places: &Places, sides: &[Rows]) -> Option<Vec<([Runs; 2], Sparse)>> {
        let [left, right] = [&sides[0], &sides[1]];
        let [groups, inner, columns] = places.work.sizes;
        let bytes = runs::bytes(left.count + right.count, groups + inner) + Sparse::bytes(columns);
        self.reservation.try_grow(self.spec.terms.len() * bytes).ok()?;
        let terms = self.spec.terms.iter().enumerate().map(|(number, term)| {
            let runs =
                [Runs::of(places.left(), &left.factors[number]), Runs::of(places.right(), &right.factors[number])];
            (runs, Sparse::new(columns, term.single))
        });
        Some(terms.collect())
    }

    /// Arrays of the two inputs that are multiplied, for each term. `chosen` are the factors of rows that choose sums. None if runs take
    /// less, if arrays have not the meaning of the rows, or if there is no memory for them.
    fn fill(
        &self,
        sides: &[Rows],
        rows: &mut Positioned,
        block: usize,
        chosen: &[Arc<Factor>],
    ) -> Option<Vec<[Arc<Filled>; 2]>> {
        let Positioned { places, factors, is_left } = rows;
        let [left, inner, right] = places.work.sizes;
        let bytes =
            Filled::bytes(left, inner) + Filled::bytes(inner, right) + Block::bytes(right, block.min(left * right));
        let bytes = self.spec.terms.len() * bytes;
        let mut before = std::mem::take(factors).into_iter();
        if places.work.kernel(self.how) == Kernel::Sparse || self.reservation.try_grow(bytes).is_err() {
            return None;
        }
        let mut filled: Vec<[Arc<Filled>; 2]> = vec![];
        for number in 0..self.spec.terms.len() {
            let before = before.next().unwrap_or_default();
            let term = self.filled(sides, places, number, &before, &filled);
            let finite = chosen.get(number).is_none_or(|factor| factor.is_finite());
            if !term[0].is_meant(&term[1], finite) {
                self.reservation.shrink(bytes);
                factors.clear();
                return None;
            }
            if *is_left {
                let [left, right] = before;
                let [of_left, of_right] = self.factors(sides, number);
                factors.push([left.after(&term[0], of_left), right.after(&term[1], of_right)]);
            }
            filled.push(term);
        }
        Some(filled)
    }

    /// The factors of the two inputs that are multiplied.
    fn factors<'r>(&self, sides: &'r [Rows], term: usize) -> [&'r Arc<Factor>; 2] {
        self.spec.kind.multiplied().map(|side| &sides[side].factors[term])
    }

    /// The arrays of a term. Those of earlier ones are taken where the factors are the same.
    fn filled(
        &self,
        sides: &[Rows],
        places: &Places,
        number: usize,
        before: &[Before; 2],
        earlier: &[[Arc<Filled>; 2]],
    ) -> [Arc<Filled>; 2] {
        let [left, right] = self.factors(sides, number);
        let [of_left, of_right] = places.layouts();
        let known = |side: usize, factor: &Arc<Factor>| {
            let of_this = || earlier.iter().map(|term| &term[side]).find(|array| array.is_of(factor)).cloned();
            before[side].array(factor).or_else(of_this)
        };
        [
            known(0, left).unwrap_or_else(|| Arc::new(Filled::of(of_left, places.left(), left))),
            known(1, right).unwrap_or_else(|| Arc::new(Filled::of(of_right, places.right(), right))),
        ]
    }

    fn chosen(&self, by: usize, sides: &[Rows], rows: &mut Positioned) -> Result<Option<(Computed, Option<Taken>)>> {
        let places = Arc::clone(&rows.places);
        let Some(choice) = &places.choice else { return internal_err!("nothing says which sums are wanted") };
        let factors = &sides[by].factors;
        if self.reservation.try_grow(factors.len() * Sums::bytes(choice.groups.count)).is_err() {
            return Ok(None);
        }
        // Sums that are few beside the rows are looked up in the order of the rows.
        let block = pairs::BLOCK.max(4 * choice.groups.of_rows.len());
        let (sums, kernel): (Vec<_>, _) = match self.fill(sides, rows, block, factors) {
            Some(terms) => {
                let terms = terms.iter().zip(factors);
                let sums = terms.map(|([left, right], factor)| choice.by_arrays(factor, left, right, block));
                (sums.collect(), Kernel::Dense)
            }
            None => {
                let terms = 0..factors.len();
                let sums: Option<_> = terms.map(|term| self.by_runs(&places, choice, sides, [by, term])).collect();
                let Some(sums) = sums else { return Ok(None) };
                (sums, Kernel::Sparse)
            }
        };
        let rows = self.rows_of(&sides[by], &choice.groups, &sums)?;
        Ok(Some((Computed::Rows(rows), Some(Taken { kernel, work: places.work }))))
    }

    /// The sums of a term that rows of an input choose, by runs. None if there is no memory for them.
    fn by_runs(&self, places: &Places, choice: &Choice, sides: &[Rows], [by, term]: [usize; 2]) -> Option<Sums> {
        let (left, right) = (places.left(), places.right());
        let rows = left.major.of_rows.len() + right.major.of_rows.len();
        let sizes = places.work.sizes;
        let bytes = runs::bytes(rows, sizes.iter().sum()) + Sparse::bytes(sizes[2]);
        self.reservation.try_grow(bytes).ok()?;
        let factor = &sides[by].factors[term];
        let [of_left, of_right] = self.spec.kind.multiplied().map(|side| &sides[side].factors[term]);
        let left = Runs::of(left, of_left);
        let sums = match places.has_few_steps {
            true => choice.by_runs(factor, &left, &Runs::of(right.turned(), of_right)),
            false => choice.by_products(factor, &left, &Runs::of(right, of_right)),
        };
        self.reservation.shrink(bytes);
        Some(sums)
    }

    /// The groups that have rows, with their aggregates. All terms have the same groups.
    fn rows_of(&self, rows: &Rows, groups: &Positions, sums: &[Sums]) -> Result<Vec<RecordBatch>> {
        let Some(first_term) = sums.first() else { return internal_err!("a sum of no terms") };
        let there = BooleanArray::from(first_term.there.clone());
        let mut batches = vec![];
        let mut first = 0;
        for mut columns in rows.keys_in_parts(groups)? {
            let part = first..first + columns.first().map_or(groups.count, |(_, key)| key.len());
            columns.sort_by_key(|(place, _)| *place);
            let mut columns: Vec<_> = columns.into_iter().map(|(_, column)| column).collect();
            // A part has memory of its own, as slices of all values would each count as the whole.
            let of_terms: Vec<_> = sums.iter().map(|sums| sums.part(part.clone())).collect();
            for output in &self.spec.outputs {
                columns.push(output.column(&of_terms)?);
            }
            let batch = RecordBatch::try_new(Arc::clone(&self.schema), columns)?;
            batches.push(filter_record_batch(&batch, &there.slice(part.start, part.len()))?);
            first = part.end;
        }
        // The last of them is given out first.
        batches.reverse();
        Ok(batches)
    }
}
