//! The rows of an input by two positions.

use crate::key_codes::{KeyCodes, NO_CODE};

/// The factors of rows, one for each.
#[derive(Debug, Clone, Default)]
pub struct Factor {
    /// The values, anything where there is none.
    pub values: Vec<f64>,
    /// Whether the factor of a row is NULL, empty if none is.
    pub nulls: Vec<bool>,
}

/// The rows of an input by two positions. A row that lacks a position meets no other.
#[derive(Debug, Clone, Copy)]
pub struct CooMatrix<'s> {
    /// The position that comes first in the order of rows.
    pub major: &'s KeyCodes,
    /// The other one.
    pub minor: &'s KeyCodes,
}

/// How many rows positions have.
#[derive(Debug)]
pub struct EntryCounts {
    /// All rows that have both positions.
    pub rows: usize,
    /// The rows of each first position.
    pub major: Vec<u32>,
    /// The rows of each other position.
    pub minor: Vec<u32>,
}

impl EntryCounts {
    /// How many of all pairs of positions have rows, from 0 to 1.
    pub fn density(&self) -> f64 {
        let all = self.major.len() as f64 * self.minor.len() as f64;
        if all > 0.0 { self.rows as f64 / all } else { 0.0 }
    }
}

impl Factor {
    /// The factor of a row, none if it is NULL.
    pub fn get(&self, row: usize) -> Option<f64> {
        if self.nulls.get(row) == Some(&true) { None } else { self.values.get(row).copied() }
    }

    /// Whether all that are not NULL are finite.
    pub fn is_finite(&self) -> bool {
        // Whatever stands where there is none may be infinite as well: then it costs a slower way and no more.
        self.values.iter().all(|value| value.is_finite())
    }

    /// Whether all are the same to the last bit.
    pub fn is_bitwise_equal(&self, other: &Self) -> bool {
        let values = || self.values.iter().zip(&other.values);
        self.nulls == other.nulls
            && self.values.len() == other.values.len()
            && values().all(|(one, other)| one.to_bits() == other.to_bits())
    }

    /// The memory that they take, in bytes.
    pub fn memory_size(&self) -> usize {
        self.values.len() * size_of::<f64>() + self.nulls.len()
    }
}

impl<'s> CooMatrix<'s> {
    /// The rows, each with its two positions and its number.
    pub fn entries(self) -> impl Iterator<Item = (usize, usize, usize)> + 's {
        let positions = self.major.codes.iter().zip(&self.minor.codes).enumerate();
        positions.filter_map(|(row, (major, minor))| {
            (*major != NO_CODE && *minor != NO_CODE).then_some((*major as usize, *minor as usize, row))
        })
    }

    /// How many rows each first position has.
    pub fn count_by_major(self) -> Vec<u32> {
        let mut counts = vec![0; self.major.count];
        self.entries().for_each(|(major, _, _)| counts[major] += 1);
        counts
    }

    /// How many rows each position has, of the first ones and of the others.
    pub fn count(self) -> EntryCounts {
        let mut counts = EntryCounts { rows: 0, major: vec![0; self.major.count], minor: vec![0; self.minor.count] };
        self.entries().for_each(|(major, minor, _)| {
            counts.rows += 1;
            counts.major[major] += 1;
            counts.minor[minor] += 1;
        });
        counts
    }

    /// The same rows with the positions the other way round.
    pub fn transpose(self) -> Self {
        Self { major: self.minor, minor: self.major }
    }
}
