//! Products of sparse matrices, row by row.
//!
//! Row `i` of `A B` is the sum of the rows `k` of `B`, each times `A[i, k]` (F. G. Gustavson, "Two fast algorithms for sparse matrices",
//! ACM Transactions on Mathematical Software 4(3), 1978). Its work is the number of pairs of rows that the join would make. A dense array,
//! the accumulator, has the sums of one row, and a list has the columns that are in use, so that clearing takes no longer than filling.

use crate::csr::{CsrEntry, CsrMatrix};

/// The state of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ColumnState {
    /// It has no rows.
    Missing,
    /// All of its products are NULL.
    Null,
    /// It has a sum.
    Sum,
}

/// The sums of one row of a product.
#[derive(Debug)]
pub struct SparseAccumulator {
    sums: Vec<f64>,
    states: Vec<ColumnState>,
    touched: Vec<u32>,
    /// Whether products are rounded to single precision before they are added.
    single_precision: bool,
}

impl SparseAccumulator {
    /// Creates an empty accumulator.
    pub fn new(columns: usize, single_precision: bool) -> Self {
        Self {
            sums: vec![0.0; columns],
            states: vec![ColumnState::Missing; columns],
            touched: vec![],
            single_precision,
        }
    }

    /// Returns the memory of an accumulator in bytes.
    pub fn bytes_for(columns: usize) -> usize {
        columns * (size_of::<f64>() + size_of::<ColumnState>() + size_of::<u32>())
    }

    /// Multiplies one row of the left matrix with the right matrix, and drains the result: columns in ascending order, each with its sum,
    /// `None` if all of its products are NULL.
    pub fn multiply_row(&mut self, left: &[CsrEntry], right: &CsrMatrix) -> impl Iterator<Item = (usize, Option<f64>)> {
        self.accumulate_row(left, right);
        self.touched.sort_unstable();
        let (sums, states) = (&self.sums, &mut self.states);
        self.touched.drain(..).map(move |column| {
            let column = column as usize;
            let state = std::mem::replace(&mut states[column], ColumnState::Missing);
            (column, (state == ColumnState::Sum).then(|| sums[column]))
        })
    }

    /// Adds the product of one row of the left matrix and the right matrix.
    pub fn accumulate_row(&mut self, left: &[CsrEntry], right: &CsrMatrix) {
        for entry in left {
            let others = right.row(entry.minor as usize);
            if self.single_precision {
                self.add_scaled::<true>(entry, others)
            } else {
                self.add_scaled::<false>(entry, others)
            }
        }
    }

    /// Returns whether a column has rows.
    pub fn is_occupied(&self, column: usize) -> bool {
        self.states[column] != ColumnState::Missing
    }

    /// Returns the sum of a column, `None` if it is NULL or has no rows.
    pub fn sum(&self, column: usize) -> Option<f64> {
        (self.states[column] == ColumnState::Sum).then(|| self.sums[column])
    }

    /// Removes all sums.
    pub fn clear(&mut self) {
        for column in self.touched.drain(..) {
            self.states[column as usize] = ColumnState::Missing;
        }
    }

    fn add_scaled<const SINGLE: bool>(&mut self, entry: &CsrEntry, others: &[CsrEntry]) {
        for other in others {
            let column = other.minor as usize;
            let state = &mut self.states[column];
            if *state == ColumnState::Missing {
                self.touched.push(other.minor);
                self.sums[column] = 0.0;
                *state = ColumnState::Null;
            }
            if entry.is_valid && other.is_valid {
                *state = ColumnState::Sum;
                self.sums[column] += match SINGLE {
                    true => f64::from(entry.factor as f32 * other.factor as f32),
                    false => entry.factor * other.factor,
                };
            }
        }
    }
}
