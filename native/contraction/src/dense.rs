//! Sums of products by dense arrays.
//!
//! A missing row is a 0 in an array, so that what is not finite must meet rows only. That a pair has rows, and what their sum is, are
//! two things: bits say the first.

use std::ops::Range;

use crate::bits::Bits;
use crate::runs::{Entry, Runs, Traits};

/// So many sums a block has, or one row of them if that is more.
const BLOCK: usize = 1 << 16;

/// The rows of the right side as an array.
#[derive(Debug)]
pub struct Right {
    values: Vec<f64>,
    there: Bits,
    /// Which have a factor that is not NULL, if not all have.
    known: Option<Bits>,
    rows: usize,
    columns: usize,
    full: bool,
}

/// The sums of some runs of the left side.
#[derive(Debug)]
pub struct Block {
    /// The runs.
    pub runs: Range<usize>,
    sums: Vec<f64>,
    there: Bits,
    known: Option<Bits>,
    columns: usize,
}

/// Whether a product of arrays has the meaning of the rows.
pub fn is_meant(left: Traits, right: Traits) -> bool {
    // Rows of one place are added before they are multiplied, and their sum may be infinite where that of their products is not.
    let have_sums = [left, right].iter().all(|side| side.finite || !side.repeated);
    have_sums && (left.finite || right.full) && (right.finite || left.full)
}

impl Right {
    /// Rows by two positions, of which there are so many.
    pub fn new<'e>(
        (rows, columns): (usize, usize),
        entries: impl Iterator<Item = (usize, usize, &'e Entry)>,
        traits: Traits,
    ) -> Self {
        let mut values = vec![0.0; rows * columns];
        let mut there = Bits::new(rows, columns);
        let mut known = traits.nulls.then(|| there.clone());
        for (row, column, entry) in entries {
            values[row * columns + column] += entry.factor;
            there.set(row, column);
            if let Some(known) = known.as_mut().filter(|_| entry.known) {
                known.set(row, column);
            }
        }
        Self { values, there, known, rows, columns, full: traits.full }
    }

    /// The memory that so many rows and columns take, with a block of sums.
    pub fn bytes(rows: usize, columns: usize) -> usize {
        let block = Self::runs_of_block(columns);
        8 * (rows * columns + block * (rows + columns)) + 2 * (Bits::bytes(rows, columns) + Bits::bytes(block, columns))
    }

    fn runs_of_block(columns: usize) -> usize {
        (BLOCK / columns.max(1)).max(1)
    }

    /// The blocks that so many runs are computed in.
    pub fn blocks(&self, runs: usize) -> impl Iterator<Item = Range<usize>> + use<> {
        let size = Self::runs_of_block(self.columns);
        (0..runs).step_by(size).map(move |first| first..runs.min(first + size))
    }

    /// The sums of these runs of the left side, whose other position is the row here.
    pub fn block(&self, left: &Runs, runs: Range<usize>) -> Block {
        let mut factors = vec![0.0; runs.len() * self.rows];
        let mut there = Bits::new(runs.len(), self.columns);
        let mut known = (left.traits.nulls || self.known.is_some()).then(|| there.clone());
        let known_here = self.known.as_ref().unwrap_or(&self.there);
        for (number, run) in runs.clone().enumerate() {
            let run = left.run(run);
            for entry in run {
                factors[number * self.rows + entry.minor as usize] += entry.factor;
                if let Some(known) = known.as_mut().filter(|_| entry.known) {
                    known.add(number, known_here, entry.minor as usize);
                }
            }
            // All rows of a full array have the same columns.
            let few = if self.full { &run[..run.len().min(1)] } else { run };
            for entry in few {
                there.add(number, &self.there, entry.minor as usize);
            }
        }
        let sums = product(&factors, &self.values, [runs.len(), self.rows, self.columns]);
        Block { runs, sums, there, known, columns: self.columns }
    }
}

impl Block {
    /// The columns in which a run has rows, each with the sum of the products, none if all are NULL.
    pub fn sums_of(&self, run: usize) -> impl Iterator<Item = (usize, Option<f64>)> {
        self.there.columns(run - self.runs.start).map(move |column| (column, self.sum(run, column)))
    }

    /// Whether a run has rows in a column.
    pub fn has(&self, run: usize, column: usize) -> bool {
        self.there.has(run - self.runs.start, column)
    }

    /// The sum of the products, none if all are NULL.
    pub fn sum(&self, run: usize, column: usize) -> Option<f64> {
        let number = run - self.runs.start;
        let known = self.known.as_ref().unwrap_or(&self.there).has(number, column);
        known.then(|| self.sums[number * self.columns + column])
    }
}

/// The product of two arrays, of as many rows, inner positions and columns.
fn product(left: &[f64], right: &[f64], [rows, inner, columns]: [usize; 3]) -> Vec<f64> {
    let mut sums = vec![0.0; rows * columns];
    assert!(left.len() == rows * inner && right.len() == inner * columns, "arrays of other sizes");
    let (by_inner, by_column) = (inner as isize, columns as isize);
    // SAFETY: the three arrays have as many elements as their sizes say, one row after the other, and the last overlaps no other.
    unsafe {
        matrixmultiply::dgemm(
            rows,
            inner,
            columns,
            1.0,
            left.as_ptr(),
            by_inner,
            1,
            right.as_ptr(),
            by_column,
            1,
            0.0,
            sums.as_mut_ptr(),
            by_column,
            1,
        );
    }
    sums
}
