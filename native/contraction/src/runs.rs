//! Rows sorted by two positions: those of one position, a run, stand side by side.

use std::ops::Range;

use crate::entries::{Entries, Factor};

/// A row in a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Entry {
    /// Its other position.
    pub minor: u32,
    /// Its factor, 0 where it is NULL.
    pub factor: f64,
    /// Whether its factor is not NULL.
    pub known: bool,
}

/// Rows by their first position, and in each run by the other.
#[derive(Debug)]
pub struct Runs {
    starts: Vec<usize>,
    entries: Vec<Entry>,
    /// How many other positions there are.
    pub minors: usize,
}

impl Runs {
    /// The rows of an input, each with its factor.
    pub fn of(rows: Entries, factor: &Factor) -> Self {
        let mut starts = Vec::with_capacity(rows.major.count + 1);
        let mut next = 0;
        starts.push(next);
        for count in rows.by_major() {
            next += count as usize;
            starts.push(next);
        }
        let nothing = Entry { minor: 0, factor: 0.0, known: false };
        let mut entries = vec![nothing; next];
        let mut places = starts.clone();
        for (major, minor, row) in rows.rows() {
            let value = factor.of(row);
            entries[places[major]] =
                Entry { minor: minor as u32, factor: value.unwrap_or(0.0), known: value.is_some() };
            places[major] += 1;
        }
        for run in starts.windows(2) {
            let run = &mut entries[run[0]..run[1]];
            if !run.is_sorted_by(|a, b| a.minor < b.minor) {
                // Rows of one place in an order of their own, so that sums over them are the same from run to run.
                run.sort_unstable_by(|a, b| {
                    let by_value = || a.known.cmp(&b.known).then(a.factor.total_cmp(&b.factor));
                    a.minor.cmp(&b.minor).then_with(by_value)
                });
            }
        }
        Self { starts, entries, minors: rows.minor.count }
    }

    /// How many runs there are.
    pub fn majors(&self) -> usize {
        self.starts.len() - 1
    }

    /// How many rows.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// The rows of a run.
    pub fn run(&self, major: usize) -> &[Entry] {
        &self.entries[self.range(major)]
    }

    fn range(&self, major: usize) -> Range<usize> {
        self.starts[major]..self.starts[major + 1]
    }
}

/// How much memory so many rows in so many runs take.
pub fn bytes(rows: usize, majors: usize) -> usize {
    rows * size_of::<Entry>() + 2 * (majors + 1) * size_of::<usize>()
}
