//! Sums of products by dense arrays.
//!
//! A missing row is a 0 in an array, so that what is not finite must meet rows only. That a pair has rows, and what their sum is, are
//! two things: bits say the first.

use std::ops::Range;
use std::sync::Arc;

use crate::bit_matrix::BitMatrix;
use crate::coo::{CooMatrix, Factor};
use crate::csr::CsrMatrix;
use crate::huge_pages::zeros;

/// Where rows stand in an array by their two positions.
#[derive(Debug)]
pub struct Occupancy {
    /// Which places have rows.
    occupied: BitMatrix,
    rows: usize,
    columns: usize,
    /// Whether two rows have one place.
    has_duplicates: bool,
    /// Whether every place has a row.
    full: bool,
}

/// Rows as an array.
#[derive(Debug)]
pub struct DenseMatrix {
    occupancy: Arc<Occupancy>,
    /// The factors, by row.
    factor: Arc<Factor>,
    values: Vec<f64>,
    /// Which places have a row whose factor is not NULL, if not all that have rows.
    valid: Option<BitMatrix>,
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
    occupied: Option<BitMatrix>,
    /// Which are over a product that is not NULL, if not all are that are over rows.
    valid: Option<BitMatrix>,
}

impl Occupancy {
    /// Where the rows of an input stand.
    pub fn from_coo(matrix: CooMatrix) -> Self {
        let [row_count, column_count] = [matrix.major.count, matrix.minor.count];
        let mut occupied = BitMatrix::new(row_count, column_count);
        let mut has_duplicates = false;
        matrix.entries().for_each(|(row, column, _)| has_duplicates |= !occupied.set(row, column));
        // Where there is no place at all, nothing meets.
        let places = row_count * column_count;
        let full = places > 0 && occupied.count_ones() == places;
        Self { occupied, rows: row_count, columns: column_count, has_duplicates, full }
    }
}

impl DenseMatrix {
    /// Rows in the places of a layout.
    pub fn from_coo(occupancy: &Arc<Occupancy>, matrix: CooMatrix, factor: &Arc<Factor>) -> Self {
        let valid = (!factor.nulls.is_empty()).then(|| BitMatrix::new(occupancy.rows, occupancy.columns));
        let values = zeros(occupancy.rows * occupancy.columns);
        let mut dense =
            Self { occupancy: Arc::clone(occupancy), factor: Arc::clone(factor), values, valid, finite: true };
        if occupancy.has_duplicates {
            dense.add_csr(&CsrMatrix::from_coo(matrix, factor));
        } else {
            matrix.entries().for_each(|(row, column, number)| dense.set(row, column, factor.get(number)));
            dense.finite = factor.is_finite() || dense.values.iter().all(|value| value.is_finite());
        }
        dense
    }

    /// Puts a factor at a place.
    fn set(&mut self, row: usize, column: usize, factor: Option<f64>) {
        let Some(factor) = factor else { return };
        self.values[row * self.occupancy.columns + column] = factor;
        if let Some(valid) = &mut self.valid {
            valid.set(row, column);
        }
    }

    /// Adds rows of which several have one place, in the order of runs, which is the same from run to run.
    fn add_csr(&mut self, matrix: &CsrMatrix) {
        let mut total = 0.0;
        for row in 0..matrix.major_count() {
            for entry in matrix.row(row).iter().filter(|entry| entry.is_valid) {
                total += entry.factor.abs();
                let sum = self.values[row * self.occupancy.columns + entry.minor as usize] + entry.factor;
                self.set(row, entry.minor as usize, Some(sum));
            }
        }
        self.finite = total.is_finite();
    }

    /// Whether these are the factors that it has.
    pub fn has_factor(&self, factor: &Arc<Factor>) -> bool {
        Arc::ptr_eq(&self.factor, factor)
    }

    /// Whether these are the factors that it has, to the last bit.
    pub fn has_equal_factor(&self, factor: &Factor) -> bool {
        self.factor.is_bitwise_equal(factor)
    }

    /// The memory that the array and what it is of take, in bytes.
    pub fn memory_size(&self) -> usize {
        Self::bytes_for(self.occupancy.rows, self.occupancy.columns) + self.factor.memory_size()
    }

    /// Whether every place has a row whose factor is not NULL.
    fn is_full(&self) -> bool {
        self.occupancy.full && self.valid.is_none()
    }

    /// Whether a product with another array, of which each of these factors takes its part, has the meaning of the rows.
    pub fn can_multiply(&self, right: &Self, factors_are_finite: bool) -> bool {
        // Rows of one place are added before they are multiplied. Infinity times their sum is not the sum of infinities, and their
        // sum may be infinite where that of their products is not.
        if self.occupancy.has_duplicates || right.occupancy.has_duplicates {
            return self.finite && right.finite && factors_are_finite;
        }
        (self.finite || right.is_full()) && (right.finite || self.is_full())
    }

    /// The memory of an array of so many rows and columns.
    pub fn bytes_for(rows: usize, columns: usize) -> usize {
        8 * rows * columns + 2 * BitMatrix::bytes_for(rows, columns)
    }

    /// The rows, in blocks whose product with another array has about so many elements.
    pub fn row_blocks(&self, right: &Self, size: usize) -> impl ExactSizeIterator<Item = Range<usize>> + use<> {
        let (rows, size) = (self.occupancy.rows, rows_per_block(right.occupancy.columns, size));
        (0..rows).step_by(size).map(move |first| first..rows.min(first + size))
    }

    /// The product of some rows with another array.
    pub fn multiply_rows(&self, right: &Self, rows: Range<usize>) -> Block {
        let [inner, columns] = [self.occupancy.columns, right.occupancy.columns];
        let left = &self.values[rows.start * inner..rows.end * inner];
        let sums = multiply(left, &right.values, [rows.len(), inner, columns]);
        let mut block = Block { rows, columns, sums, occupied: None, valid: None };
        if !(self.is_full() && right.is_full()) {
            let has_nulls = self.valid.is_some() || right.valid.is_some();
            let valid =
                has_nulls.then(|| self.pattern_product(right, block.rows.clone(), [self.valid(), right.valid()]));
            // What has a product that is not NULL has rows.
            if valid.as_ref().is_some_and(|valid| valid.count_ones() == block.sums.len()) {
                return block;
            }
            block.valid = valid;
            let occupied =
                self.pattern_product(right, block.rows.clone(), [&self.occupancy.occupied, &right.occupancy.occupied]);
            block.occupied = (occupied.count_ones() < block.sums.len()).then_some(occupied);
        }
        block
    }

    fn valid(&self) -> &BitMatrix {
        self.valid.as_ref().unwrap_or(&self.occupancy.occupied)
    }

    /// Which pairs of rows here and columns there have a place in common.
    fn pattern_product(&self, right: &Self, rows: Range<usize>, [of_left, of_right]: [&BitMatrix; 2]) -> BitMatrix {
        let mut pairs = BitMatrix::new(rows.len(), right.occupancy.columns);
        for (number, row) in rows.enumerate() {
            // All rows of a full array have the same columns.
            let enough = if right.is_full() { 1 } else { usize::MAX };
            of_left.ones(row).take(enough).for_each(|inner| pairs.or_row(number, of_right, inner));
        }
        pairs
    }

    /// The products of the rows that a row and a column of another array have in common, each times a factor.
    pub fn scaled_dot(&self, right: &Self, [row, column]: [usize; 2], factor: f64) -> Option<f64> {
        let common = self.valid().ones(row).filter(|inner| right.valid().is_set(*inner, column));
        common.fold(None, |sum, inner| {
            let left = self.values[row * self.occupancy.columns + inner];
            let product = left * right.values[inner * right.occupancy.columns + column];
            Some(sum.unwrap_or(0.0) + product * factor)
        })
    }
}

fn rows_per_block(columns: usize, size: usize) -> usize {
    (size / columns.max(1)).max(1)
}

impl Block {
    /// The memory of a block of about so many elements.
    pub fn bytes_for(columns: usize, size: usize) -> usize {
        DenseMatrix::bytes_for(rows_per_block(columns, size), columns)
    }

    /// All sums if each is over rows and none is NULL.
    pub fn all_sums(&self) -> Option<&[f64]> {
        (self.occupied.is_none() && self.valid.is_none()).then_some(self.sums.as_slice())
    }

    /// The columns in which a row has a sum over rows.
    pub fn occupied_columns(&self, row: usize) -> impl Iterator<Item = usize> {
        (0..self.columns).filter(move |column| self.is_occupied(row, *column))
    }

    /// Whether a sum is over rows.
    pub fn is_occupied(&self, row: usize, column: usize) -> bool {
        self.occupied.as_ref().is_none_or(|occupied| occupied.is_set(row - self.rows.start, column))
    }

    /// Where the sum of a row and a column stands among all.
    pub fn offset(&self, row: usize, column: usize) -> usize {
        (row - self.rows.start) * self.columns + column
    }

    /// The sum of the products, none if all are NULL.
    pub fn sum(&self, row: usize, column: usize) -> Option<f64> {
        let number = row - self.rows.start;
        let valid = match &self.valid {
            Some(valid) => valid.is_set(number, column),
            None => self.is_occupied(row, column),
        };
        valid.then(|| self.sums[self.offset(row, column)])
    }
}

/// The product of two arrays, of as many rows, inner positions and columns.
fn multiply(left: &[f64], right: &[f64], [rows, inner, columns]: [usize; 3]) -> Vec<f64> {
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
