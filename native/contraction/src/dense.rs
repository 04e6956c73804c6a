//! Products of dense matrices.
//!
//! A missing row is a 0 in the matrix. A 0 is neutral only if what it is multiplied with is finite: 0 * ∞ is NaN. So a product is computed
//! densely only if [`DenseMatrix::can_multiply`] proves that no zero meets a value that is not finite. Whether a sum has any rows, and its
//! value, are two separate facts: bit matrices have the first.

use std::ops::Range;
use std::sync::Arc;

use crate::bit_matrix::BitMatrix;
use crate::coo::{CooMatrix, Factor};
use crate::csr::CsrMatrix;
use crate::huge_pages::zeros;

/// The elements of a matrix that have rows.
#[derive(Debug)]
pub struct Occupancy {
    /// Which elements have a row.
    occupied: BitMatrix,
    rows: usize,
    columns: usize,
    /// Whether an element has several rows.
    has_duplicates: bool,
    /// Whether every element has a row.
    full: bool,
}

/// A dense matrix with the sum of the factors of each element's rows.
#[derive(Debug)]
pub struct DenseMatrix {
    occupancy: Arc<Occupancy>,
    /// The factors, by row.
    factor: Arc<Factor>,
    values: Vec<f64>,
    /// Which elements have a factor that is not NULL, if these are not all occupied ones.
    valid: Option<BitMatrix>,
    /// Whether the factors are finite, and so are the sums of duplicates.
    finite: bool,
}

/// Some rows of a product of matrices.
#[derive(Debug)]
pub struct Block {
    /// The rows.
    pub rows: Range<usize>,
    columns: usize,
    sums: Vec<f64>,
    /// Which sums have rows, `None` if all have.
    occupied: Option<BitMatrix>,
    /// Which sums have a product that is not NULL, `None` if all occupied ones have.
    valid: Option<BitMatrix>,
}

impl Occupancy {
    /// Finds the elements that have rows.
    pub fn from_coo(matrix: CooMatrix) -> Self {
        let [row_count, column_count] = [matrix.major.count, matrix.minor.count];
        let mut occupied = BitMatrix::new(row_count, column_count);
        let mut has_duplicates = false;
        matrix.entries().for_each(|(row, column, _)| has_duplicates |= !occupied.set(row, column));
        // A matrix without elements is not full: its products have no rows.
        let places = row_count * column_count;
        let full = places > 0 && occupied.count_ones() == places;
        Self { occupied, rows: row_count, columns: column_count, has_duplicates, full }
    }
}

impl DenseMatrix {
    /// Fills the matrix with the factors of rows.
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

    /// Sets an element, unless the factor is NULL.
    fn set(&mut self, row: usize, column: usize, factor: Option<f64>) {
        let Some(factor) = factor else { return };
        self.values[row * self.occupancy.columns + column] = factor;
        if let Some(valid) = &mut self.valid {
            valid.set(row, column);
        }
    }

    /// Adds the rows of each element in the order of the sparse matrix, which is the same in every execution.
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

    /// Returns whether the matrix has been made of this very factor.
    pub fn has_factor(&self, factor: &Arc<Factor>) -> bool {
        Arc::ptr_eq(&self.factor, factor)
    }

    /// Returns whether the factors of the matrix equal these to the last bit.
    pub fn has_equal_factor(&self, factor: &Factor) -> bool {
        self.factor.is_bitwise_equal(factor)
    }

    /// Returns the memory of the matrix and its factors in bytes.
    pub fn memory_size(&self) -> usize {
        Self::bytes_for(self.occupancy.rows, self.occupancy.columns) + self.factor.memory_size()
    }

    /// Returns whether every element has a factor that is not NULL.
    fn is_full(&self) -> bool {
        self.occupancy.full && self.valid.is_none()
    }

    /// Returns whether the dense product with another matrix, scaled by sampling factors, equals the sum over the rows.
    pub fn can_multiply(&self, right: &Self, factors_are_finite: bool) -> bool {
        // Rows of one element are added before they are multiplied. ∞ times their sum is not the sum of infinities, and their sum may
        // overflow where the sum of the products does not.
        if self.occupancy.has_duplicates || right.occupancy.has_duplicates {
            return self.finite && right.finite && factors_are_finite;
        }
        (self.finite || right.is_full()) && (right.finite || self.is_full())
    }

    /// Returns the memory of a matrix in bytes.
    pub fn bytes_for(rows: usize, columns: usize) -> usize {
        8 * rows * columns + 2 * BitMatrix::bytes_for(rows, columns)
    }

    /// Divides the rows into blocks whose product with another matrix has about `size` elements.
    pub fn row_blocks(&self, right: &Self, size: usize) -> impl ExactSizeIterator<Item = Range<usize>> + use<> {
        let (rows, size) = (self.occupancy.rows, rows_per_block(right.occupancy.columns, size));
        (0..rows).step_by(size).map(move |first| first..rows.min(first + size))
    }

    /// Multiplies some rows with another matrix.
    pub fn multiply_rows(&self, right: &Self, rows: Range<usize>) -> Block {
        let [inner, columns] = [self.occupancy.columns, right.occupancy.columns];
        let left = &self.values[rows.start * inner..rows.end * inner];
        let sums = multiply(left, &right.values, [rows.len(), inner, columns]);
        let mut block = Block { rows, columns, sums, occupied: None, valid: None };
        if !(self.is_full() && right.is_full()) {
            let has_nulls = self.valid.is_some() || right.valid.is_some();
            let valid =
                has_nulls.then(|| self.pattern_product(right, block.rows.clone(), [self.valid(), right.valid()]));
            // A sum with a product that is not NULL has rows.
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

    /// Multiplies the occupancy of both matrices in the boolean semiring: which pairs of a row and a column have a common inner index.
    fn pattern_product(&self, right: &Self, rows: Range<usize>, [of_left, of_right]: [&BitMatrix; 2]) -> BitMatrix {
        let mut pairs = BitMatrix::new(rows.len(), right.occupancy.columns);
        for (number, row) in rows.enumerate() {
            // All rows of a full matrix have the same columns.
            let enough = if right.is_full() { 1 } else { usize::MAX };
            of_left.ones(row).take(enough).for_each(|inner| pairs.or_row(number, of_right, inner));
        }
        pairs
    }

    /// Returns an element of the product, each of whose terms is multiplied by a factor. `None` if all terms are NULL.
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
    /// Returns the memory of a block of about `size` elements.
    pub fn bytes_for(columns: usize, size: usize) -> usize {
        DenseMatrix::bytes_for(rows_per_block(columns, size), columns)
    }

    /// Returns all sums, if each has rows and none is NULL.
    pub fn all_sums(&self) -> Option<&[f64]> {
        (self.occupied.is_none() && self.valid.is_none()).then_some(self.sums.as_slice())
    }

    /// Iterates over the columns of a row whose sums have rows.
    pub fn occupied_columns(&self, row: usize) -> impl Iterator<Item = usize> {
        (0..self.columns).filter(move |column| self.is_occupied(row, *column))
    }

    /// Returns whether a sum has rows.
    pub fn is_occupied(&self, row: usize, column: usize) -> bool {
        self.occupied.as_ref().is_none_or(|occupied| occupied.is_set(row - self.rows.start, column))
    }

    /// Returns the offset of a sum in [`Self::all_sums`].
    pub fn offset(&self, row: usize, column: usize) -> usize {
        (row - self.rows.start) * self.columns + column
    }

    /// Returns a sum, `None` if all of its products are NULL.
    pub fn sum(&self, row: usize, column: usize) -> Option<f64> {
        let number = row - self.rows.start;
        let valid = match &self.valid {
            Some(valid) => valid.is_set(number, column),
            None => self.is_occupied(row, column),
        };
        valid.then(|| self.sums[self.offset(row, column)])
    }
}

/// Multiplies two row-major matrices with a blocked kernel (BLIS, as `matrixmultiply` has it).
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
