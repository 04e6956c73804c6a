//! Sums of products by sorted runs: for each run of the left side, the runs of the right side that its rows meet.

use crate::csr::{CsrEntry, CsrMatrix};

/// What is known of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ColumnState {
    /// It has no row.
    Missing,
    /// All of its products are NULL.
    Null,
    /// It has a sum.
    Sum,
}

/// The sums of one run.
#[derive(Debug)]
pub struct SparseAccumulator {
    sums: Vec<f64>,
    states: Vec<ColumnState>,
    touched: Vec<u32>,
    /// Whether products are rounded to single precision before they are added.
    single_precision: bool,
}

impl SparseAccumulator {
    /// Sums of so many columns.
    pub fn new(columns: usize, single_precision: bool) -> Self {
        Self {
            sums: vec![0.0; columns],
            states: vec![ColumnState::Missing; columns],
            touched: vec![],
            single_precision,
        }
    }

    /// The memory that so many columns take.
    pub fn bytes_for(columns: usize) -> usize {
        columns * (size_of::<f64>() + size_of::<ColumnState>() + size_of::<u32>())
    }

    /// The columns that a run of the left side meets in the right side, whose runs are by the other position of the left one, each with
    /// the sum of the products, none if all are NULL.
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

    /// Computes the sums of a run to look at some of them, until they are forgotten.
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

    /// Whether the run meets a column.
    pub fn is_occupied(&self, column: usize) -> bool {
        self.states[column] != ColumnState::Missing
    }

    /// The sum of a column, none if it has none.
    pub fn sum(&self, column: usize) -> Option<f64> {
        (self.states[column] == ColumnState::Sum).then(|| self.sums[column])
    }

    /// Forgets the sums of a run.
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
