//! Sparse matrices in compressed form (CSR): the entries of each major index side by side.

use std::ops::Range;

use crate::coo::{CooMatrix, Factor};

/// An entry.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CsrEntry {
    /// The minor index.
    pub minor: u32,
    /// The factor, 0 if it is NULL.
    pub factor: f64,
    /// Whether the factor is not NULL.
    pub is_valid: bool,
}

/// Entries sorted by major index, and by minor index within each.
#[derive(Debug)]
pub struct CsrMatrix {
    starts: Vec<usize>,
    entries: Vec<CsrEntry>,
    /// The size of the minor axis.
    pub minor_count: usize,
}

impl CsrMatrix {
    /// Sorts the entries of a coordinate matrix with their factors, by counting those of each major index.
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
                // Entries with the same coordinates are ordered by factor, so sums over them are the same in every execution.
                run.sort_unstable_by(|a, b| {
                    let by_factor = || a.is_valid.cmp(&b.is_valid).then(a.factor.total_cmp(&b.factor));
                    a.minor.cmp(&b.minor).then_with(by_factor)
                });
            }
        }
        Self { starts, entries, minor_count: matrix.minor.count }
    }

    /// Returns the size of the major axis.
    pub fn major_count(&self) -> usize {
        self.starts.len() - 1
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the entries of a major index.
    pub fn row(&self, major: usize) -> &[CsrEntry] {
        &self.entries[self.range(major)]
    }

    fn range(&self, major: usize) -> Range<usize> {
        self.starts[major]..self.starts[major + 1]
    }
}

/// Returns the memory in bytes of a matrix with a number of entries.
pub fn bytes_for(rows: usize, majors: usize) -> usize {
    rows * size_of::<CsrEntry>() + 2 * (majors + 1) * size_of::<usize>()
}
