//! Rows sorted by two positions: those of one position, a run, stand side by side.

use std::ops::Range;

use crate::coo::{CooMatrix, Factor};

/// A row in a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CsrEntry {
    /// Its other position.
    pub minor: u32,
    /// Its factor, 0 where it is NULL.
    pub factor: f64,
    /// Whether its factor is not NULL.
    pub is_valid: bool,
}

/// Rows by their first position, and in each run by the other.
#[derive(Debug)]
pub struct CsrMatrix {
    starts: Vec<usize>,
    entries: Vec<CsrEntry>,
    /// How many other positions there are.
    pub minor_count: usize,
}

impl CsrMatrix {
    /// The rows of an input, each with its factor.
    pub fn from_coo(matrix: CooMatrix, factor: &Factor) -> Self {
        let mut starts = Vec::with_capacity(matrix.major.count + 1);
        let mut next = 0;
        starts.push(next);
        for count in matrix.count_by_major() {
            next += count as usize;
            starts.push(next);
        }
        let empty = CsrEntry { minor: 0, factor: 0.0, is_valid: false };
        let mut entries = vec![empty; next];
        let mut next_free = starts.clone();
        for (major, minor, row) in matrix.entries() {
            let value = factor.get(row);
            entries[next_free[major]] =
                CsrEntry { minor: minor as u32, factor: value.unwrap_or(0.0), is_valid: value.is_some() };
            next_free[major] += 1;
        }
        for run in starts.windows(2) {
            let run = &mut entries[run[0]..run[1]];
            if !run.is_sorted_by(|a, b| a.minor < b.minor) {
                // Rows of one place in an order of their own, so that sums over them are the same from run to run.
                run.sort_unstable_by(|a, b| {
                    let by_factor = || a.is_valid.cmp(&b.is_valid).then(a.factor.total_cmp(&b.factor));
                    a.minor.cmp(&b.minor).then_with(by_factor)
                });
            }
        }
        Self { starts, entries, minor_count: matrix.minor.count }
    }

    /// How many runs there are.
    pub fn major_count(&self) -> usize {
        self.starts.len() - 1
    }

    /// How many rows.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// The rows of a run.
    pub fn row(&self, major: usize) -> &[CsrEntry] {
        &self.entries[self.range(major)]
    }

    fn range(&self, major: usize) -> Range<usize> {
        self.starts[major]..self.starts[major + 1]
    }
}

/// How much memory so many rows in so many runs take.
pub fn bytes_for(rows: usize, majors: usize) -> usize {
    rows * size_of::<CsrEntry>() + 2 * (majors + 1) * size_of::<usize>()
}
