//! Sums of products by dense arrays.
//!
//! A missing row is a 0 in an array, so that what is not finite must meet rows only. That a pair has rows, and what their sum is, are
//! two things: bits say the first.

use std::ops::Range;
use std::sync::Arc;

use crate::bits::Bits;
use crate::entries::{Entries, Factor};
use crate::pages::zeros;
use crate::runs::Runs;

/// Where rows stand in an array by their two positions.
#[derive(Debug)]
pub struct Layout {
    /// Which places have rows.
    there: Bits,
    rows: usize,
    columns: usize,
    /// Whether two rows have one place.
    repeated: bool,
    /// Whether every place has a row.
    full: bool,
}

/// Rows as an array.
#[derive(Debug)]
pub struct Filled {
    layout: Arc<Layout>,
    /// The factors, by row.
    factor: Arc<Factor>,
    values: Vec<f64>,
    /// Which places have a row whose factor is not NULL, if not all that have rows.
    known: Option<Bits>,
    /// Whether the factors are finite, and so are sums of them.
    finite: bool,
}

/// The sums of some rows of the left array.
#[derive(Debug)]
pub struct Block {
    /// The rows.
    pub rows: Range<usize>,
    columns: usize,
    sums: Vec<f64>,
    /// Which sums are over rows, if not all are.
    there: Option<Bits>,
    /// Which are over a product that is not NULL, if not all are that are over rows.
    known: Option<Bits>,
}

impl Layout {
    /// Where the rows of an input stand.
    pub fn of(rows: Entries) -> Self {
        let [of_rows, of_columns] = [rows.major.count, rows.minor.count];
        let mut there = Bits::new(of_rows, of_columns);
        let mut repeated = false;
        rows.rows().for_each(|(row, column, _)| repeated |= !there.set(row, column));
        // Where there is no place at all, nothing meets.
        let places = of_rows * of_columns;
        let full = places > 0 && there.count() == places;
        Self { there, rows: of_rows, columns: of_columns, repeated, full }
    }
}

impl Filled {
    /// Rows in the places of a layout.
    pub fn of(layout: &Arc<Layout>, rows: Entries, factor: &Arc<Factor>) -> Self {
        let known = (!factor.nulls.is_empty()).then(|| Bits::new(layout.rows, layout.columns));
        let values = zeros(layout.rows * layout.columns);
        let mut filled = Self { layout: Arc::clone(layout), factor: Arc::clone(factor), values, known, finite: true };
        if layout.repeated {
            filled.add_runs(&Runs::of(rows, factor));
        } else {
            rows.rows().for_each(|(row, column, number)| filled.put(row, column, factor.of(number)));
            filled.finite = factor.is_finite() || filled.values.iter().all(|value| value.is_finite());
        }
        filled
    }

    /// Puts a factor at a place.
    fn put(&mut self, row: usize, column: usize, factor: Option<f64>) {
        let Some(factor) = factor else { return };
        self.values[row * self.layout.columns + column] = factor;
        if let Some(known) = &mut self.known {
            known.set(row, column);
        }
    }

    /// Adds rows of which several have one place, in the order of runs, which is the same from run to run.
    fn add_runs(&mut self, runs: &Runs) {
        let mut total = 0.0;
        for row in 0..runs.majors() {
            for entry in runs.run(row).iter().filter(|entry| entry.known) {
                total += entry.factor.abs();
                let sum = self.values[row * self.layout.columns + entry.minor as usize] + entry.factor;
                self.put(row, entry.minor as usize, Some(sum));
            }
        }
        self.finite = total.is_finite();
    }

    /// Whether these are the factors that it has.
    pub fn is_of(&self, factor: &Arc<Factor>) -> bool {
        Arc::ptr_eq(&self.factor, factor)
    }

    /// Whether these are the factors that it has, to the last bit.
    pub fn is_same(&self, factor: &Factor) -> bool {
        self.factor.is_same(factor)
    }

    /// The memory that the array and what it is of take, in bytes.
    pub fn memory(&self) -> usize {
        Self::bytes(self.layout.rows, self.layout.columns) + self.factor.bytes()
    }

    /// Whether every place has a row whose factor is not NULL.
    fn is_full(&self) -> bool {
        self.layout.full && self.known.is_none()
    }

    /// Whether a product with another array, of which each of these factors takes its part, has the meaning of the rows.
    pub fn is_meant(&self, right: &Self, factors_are_finite: bool) -> bool {
        // Rows of one place are added before they are multiplied. Infinity times their sum is not the sum of infinities, and their
        // sum may be infinite where that of their products is not.
        if self.layout.repeated || right.layout.repeated {
            return self.finite && right.finite && factors_are_finite;
        }
        (self.finite || right.is_full()) && (right.finite || self.is_full())
    }

    /// The memory of an array of so many rows and columns.
    pub fn bytes(rows: usize, columns: usize) -> usize {
        8 * rows * columns + 2 * Bits::bytes(rows, columns)
    }

    /// The rows, in blocks whose product with another array has about so many elements.
    pub fn blocks(&self, right: &Self, size: usize) -> impl ExactSizeIterator<Item = Range<usize>> + use<> {
        let (rows, size) = (self.layout.rows, rows_of_block(right.layout.columns, size));
        (0..rows).step_by(size).map(move |first| first..rows.min(first + size))
    }

    /// The product of some rows with another array.
    pub fn block(&self, right: &Self, rows: Range<usize>) -> Block {
        let [inner, columns] = [self.layout.columns, right.layout.columns];
        let left = &self.values[rows.start * inner..rows.end * inner];
        let sums = product(left, &right.values, [rows.len(), inner, columns]);
        let mut block = Block { rows, columns, sums, there: None, known: None };
        if !(self.is_full() && right.is_full()) {
            let have_nulls = self.known.is_some() || right.known.is_some();
            let known = have_nulls.then(|| self.pairs(right, block.rows.clone(), [self.known(), right.known()]));
            // What has a product that is not NULL has rows.
            if known.as_ref().is_some_and(|known| known.count() == block.sums.len()) {
                return block;
            }
            block.known = known;
            let there = self.pairs(right, block.rows.clone(), [&self.layout.there, &right.layout.there]);
            block.there = (there.count() < block.sums.len()).then_some(there);
        }
        block
    }

    fn known(&self) -> &Bits {
        self.known.as_ref().unwrap_or(&self.layout.there)
    }

    /// Which pairs of rows here and columns there have a place in common.
    fn pairs(&self, right: &Self, rows: Range<usize>, [here, there]: [&Bits; 2]) -> Bits {
        let mut pairs = Bits::new(rows.len(), right.layout.columns);
        for (number, row) in rows.enumerate() {
            // All rows of a full array have the same columns.
            let enough = if right.is_full() { 1 } else { usize::MAX };
            here.columns(row).take(enough).for_each(|inner| pairs.add(number, there, inner));
        }
        pairs
    }

    /// The products of the rows that a row and a column of another array have in common, each times a factor.
    pub fn scaled(&self, right: &Self, [row, column]: [usize; 2], factor: f64) -> Option<f64> {
        let common = self.known().columns(row).filter(|inner| right.known().has(*inner, column));
        common.fold(None, |sum, inner| {
            let left = self.values[row * self.layout.columns + inner];
            let product = left * right.values[inner * right.layout.columns + column];
            Some(sum.unwrap_or(0.0) + product * factor)
        })
    }
}

fn rows_of_block(columns: usize, size: usize) -> usize {
    (size / columns.max(1)).max(1)
}

impl Block {
    /// The memory of a block of about so many elements.
    pub fn bytes(columns: usize, size: usize) -> usize {
        Filled::bytes(rows_of_block(columns, size), columns)
    }

    /// All sums if each is over rows and none is NULL.
    pub fn complete(&self) -> Option<&[f64]> {
        (self.there.is_none() && self.known.is_none()).then_some(self.sums.as_slice())
    }

    /// The columns in which a row has a sum over rows.
    pub fn columns_of(&self, row: usize) -> impl Iterator<Item = usize> {
        (0..self.columns).filter(move |column| self.has(row, *column))
    }

    /// Whether a sum is over rows.
    pub fn has(&self, row: usize, column: usize) -> bool {
        self.there.as_ref().is_none_or(|there| there.has(row - self.rows.start, column))
    }

    /// Where the sum of a row and a column stands among all.
    pub fn place(&self, row: usize, column: usize) -> usize {
        (row - self.rows.start) * self.columns + column
    }

    /// The sum of the products, none if all are NULL.
    pub fn sum(&self, row: usize, column: usize) -> Option<f64> {
        let number = row - self.rows.start;
        let known = match &self.known {
            Some(known) => known.has(number, column),
            None => self.has(row, column),
        };
        known.then(|| self.sums[self.place(row, column)])
    }
}

/// The product of two arrays, of as many rows, inner positions and columns.
fn product(left: &[f64], right: &[f64], [rows, inner, columns]: [usize; 3]) -> Vec<f64> {
    let mut sums = zeros(rows * columns);
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
