//! Rows sorted by two positions: those of one position, a run, stand side by side.

use std::ops::Range;

use crate::keys::NONE;

/// The factors of rows, one for each.
#[derive(Debug, Clone, Default)]
pub struct Factor {
    /// The values, anything where there is none.
    pub values: Vec<f64>,
    /// Whether the factor of a row is NULL, empty if none is.
    pub nulls: Vec<bool>,
}

impl Factor {
    /// The factor of a row, none if it is NULL.
    pub fn of(&self, row: usize) -> Option<f64> {
        if self.nulls.get(row) == Some(&true) { None } else { self.values.get(row).copied() }
    }
}

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

/// Rows by one position, and in each run by the other.
#[derive(Debug)]
pub struct Runs {
    starts: Vec<usize>,
    entries: Vec<Entry>,
    /// How many other positions there are.
    pub minors: usize,
    /// What is known of the entries.
    pub traits: Traits,
}

/// What is known of all entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Traits {
    /// Whether two rows have both positions.
    pub repeated: bool,
    /// Whether every pair of positions has a row whose factor is not NULL.
    pub full: bool,
    /// Whether the factor of a row is NULL.
    pub nulls: bool,
    /// Whether the factors are finite, and so are sums of them.
    pub finite: bool,
}

impl Runs {
    /// The rows by a position of which there are so many, and another one. Rows that lack one of the two are left out.
    pub fn of((major, majors): (&[u32], usize), (minor, minors): (&[u32], usize), factor: &Factor) -> Self {
        let mut starts = vec![0_usize; majors + 1];
        let positions = || major.iter().zip(minor).filter(|(major, minor)| **major != NONE && **minor != NONE);
        for (major, _) in positions() {
            starts[*major as usize + 1] += 1;
        }
        for position in 0..majors {
            starts[position + 1] += starts[position];
        }
        let mut next = starts.clone();
        let nothing = Entry { minor: 0, factor: 0.0, known: false };
        let mut entries = vec![nothing; starts[majors]];
        for (row, (major, minor)) in major.iter().zip(minor).enumerate() {
            if *major != NONE && *minor != NONE {
                let factor = factor.of(row);
                let place = &mut next[*major as usize];
                entries[*place] = Entry { minor: *minor, factor: factor.unwrap_or(0.0), known: factor.is_some() };
                *place += 1;
            }
        }
        let mut repeated = false;
        for run in starts.windows(2) {
            let run = &mut entries[run[0]..run[1]];
            if !run.is_sorted_by(|a, b| a.minor < b.minor) {
                // Rows of one place in an order of their own, so that sums over them are the same from run to run.
                run.sort_unstable_by(|a, b| {
                    let by_value = || a.known.cmp(&b.known).then(a.factor.total_cmp(&b.factor));
                    a.minor.cmp(&b.minor).then_with(by_value)
                });
                repeated |= !run.is_sorted_by(|a, b| a.minor < b.minor);
            }
        }
        let mut runs = Self { starts, entries, minors, traits: Traits::default() };
        runs.traits = runs.found_traits(repeated);
        runs
    }

    fn found_traits(&self, repeated: bool) -> Traits {
        let nulls = self.entries.iter().any(|entry| !entry.known);
        let total = self
            .entries
            .iter()
            .map(|entry| entry.factor.abs())
            .fold(0.0, |a: f64, b| if repeated { a + b } else { a.max(b) });
        let has_nan = self.entries.iter().any(|entry| entry.factor.is_nan());
        let full = !repeated && !nulls && self.entries.len() == self.majors() * self.minors;
        Traits { repeated, full, nulls, finite: total.is_finite() && !has_nan }
    }

    /// How many runs there are.
    pub fn majors(&self) -> usize {
        self.starts.len() - 1
    }

    /// How many rows.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// How many of all pairs of positions have rows, from 0 to 1.
    pub fn filling(&self) -> f64 {
        let all = self.majors() as f64 * self.minors as f64;
        if all > 0.0 { self.len() as f64 / all } else { 0.0 }
    }

    /// How many rows have each of the other positions.
    pub fn by_minor(&self) -> Vec<usize> {
        let mut counts = vec![0; self.minors];
        self.entries.iter().for_each(|entry| counts[entry.minor as usize] += 1);
        counts
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
    rows * size_of::<Entry>() + (majors + 1) * size_of::<usize>()
}

impl Default for Traits {
    fn default() -> Self {
        Self { repeated: false, full: true, nulls: false, finite: true }
    }
}
