//! Sums of products by sorted runs: for each run of the left side, the runs of the right side that its rows meet.

use crate::runs::{Entry, Runs};

/// What is known of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// It has no row.
    Missing,
    /// All of its products are NULL.
    Null,
    /// It has a sum.
    Known,
}

/// The sums of one run.
#[derive(Debug)]
pub struct Sparse {
    sums: Vec<f64>,
    states: Vec<State>,
    touched: Vec<u32>,
    /// Whether products are rounded to single precision before they are added.
    single: bool,
}

impl Sparse {
    /// Sums of so many columns.
    pub fn new(columns: usize, single: bool) -> Self {
        Self { sums: vec![0.0; columns], states: vec![State::Missing; columns], touched: vec![], single }
    }

    /// The memory that so many columns take.
    pub fn bytes(columns: usize) -> usize {
        columns * (size_of::<f64>() + size_of::<State>() + size_of::<u32>())
    }

    /// The columns that a run of the left side meets in the right side, whose runs are by the other position of the left one, each with
    /// the sum of the products, none if all are NULL.
    pub fn sums_of(&mut self, left: &[Entry], right: &Runs) -> impl Iterator<Item = (usize, Option<f64>)> {
        self.add_all(left, right);
        self.touched.sort_unstable();
        let (sums, states) = (&self.sums, &mut self.states);
        self.touched.drain(..).map(move |column| {
            let column = column as usize;
            let state = std::mem::replace(&mut states[column], State::Missing);
            (column, (state == State::Known).then(|| sums[column]))
        })
    }

    /// Computes the sums of a run to look at some of them, until they are forgotten.
    pub fn add_all(&mut self, left: &[Entry], right: &Runs) {
        for entry in left {
            let others = right.run(entry.minor as usize);
            if self.single { self.add::<true>(entry, others) } else { self.add::<false>(entry, others) }
        }
    }

    /// Whether the run meets a column.
    pub fn has(&self, column: usize) -> bool {
        self.states[column] != State::Missing
    }

    /// The sum of a column, none if it has none.
    pub fn sum(&self, column: usize) -> Option<f64> {
        (self.states[column] == State::Known).then(|| self.sums[column])
    }

    /// Forgets the sums of a run.
    pub fn forget(&mut self) {
        for column in self.touched.drain(..) {
            self.states[column as usize] = State::Missing;
        }
    }

    fn add<const SINGLE: bool>(&mut self, entry: &Entry, others: &[Entry]) {
        for other in others {
            let column = other.minor as usize;
            let state = &mut self.states[column];
            if *state == State::Missing {
                self.touched.push(other.minor);
                self.sums[column] = 0.0;
                *state = State::Null;
            }
            if entry.known && other.known {
                *state = State::Known;
                self.sums[column] += match SINGLE {
                    true => f64::from(entry.factor as f32 * other.factor as f32),
                    false => entry.factor * other.factor,
                };
            }
        }
    }
}
