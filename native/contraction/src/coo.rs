//! The rows of an input as a sparse matrix in coordinate form (COO).

use crate::key_codes::{KeyCodes, NO_CODE};

/// The factors of rows.
#[derive(Debug, Clone, Default)]
pub struct Factor {
    /// The values, arbitrary where the factor is NULL.
    pub values: Vec<f64>,
    /// Whether the factor of each row is NULL; empty if none is.
    pub nulls: Vec<bool>,
}

/// A sparse matrix whose entries are the rows of an input, with two codes as coordinates. A row without one of the codes is no entry.
/// Entries may have the same coordinates.
#[derive(Debug, Clone, Copy)]
pub struct CooMatrix<'s> {
    /// The code of the major axis.
    pub major: &'s KeyCodes,
    /// The code of the minor axis.
    pub minor: &'s KeyCodes,
}

/// Numbers of entries.
#[derive(Debug)]
pub struct EntryCounts {
    /// All entries.
    pub rows: usize,
    /// Those of each major index.
    pub major: Vec<u32>,
    /// Those of each minor index.
    pub minor: Vec<u32>,
}

impl EntryCounts {
    /// Returns the number of entries per element of the dense matrix.
    pub fn density(&self) -> f64 {
        let all = self.major.len() as f64 * self.minor.len() as f64;
        if all > 0.0 { self.rows as f64 / all } else { 0.0 }
    }
}

impl Factor {
    /// Returns the factor of a row, `None` if it is NULL.
    pub fn get(&self, row: usize) -> Option<f64> {
        if self.nulls.get(row) == Some(&true) { None } else { self.values.get(row).copied() }
    }

    /// Returns whether all factors that are not NULL are finite.
    pub fn is_finite(&self) -> bool {
        // The value of a NULL factor may be infinite: that only selects a slower path.
        self.values.iter().all(|value| value.is_finite())
    }

    /// Returns whether all factors are the same to the last bit.
    pub fn is_bitwise_equal(&self, other: &Self) -> bool {
        let values = || self.values.iter().zip(&other.values);
        self.nulls == other.nulls
            && self.values.len() == other.values.len()
            && values().all(|(one, other)| one.to_bits() == other.to_bits())
    }

    /// Returns the memory of the factors in bytes.
    pub fn memory_size(&self) -> usize {
        self.values.len() * size_of::<f64>() + self.nulls.len()
    }
}

impl<'s> CooMatrix<'s> {
    /// Iterates over the entries as major index, minor index and row.
    pub fn entries(self) -> impl Iterator<Item = (usize, usize, usize)> + 's {
        let positions = self.major.codes.iter().zip(&self.minor.codes).enumerate();
        positions.filter_map(|(row, (major, minor))| {
            (*major != NO_CODE && *minor != NO_CODE).then_some((*major as usize, *minor as usize, row))
        })
    }

    /// Counts the entries of each major index.
    pub fn count_by_major(self) -> Vec<u32> {
        let mut counts = vec![0; self.major.count];
        self.entries().for_each(|(major, _, _)| counts[major] += 1);
        counts
    }

    /// Counts the entries along both axes.
    pub fn count(self) -> EntryCounts {
        let mut counts = EntryCounts { rows: 0, major: vec![0; self.major.count], minor: vec![0; self.minor.count] };
        self.entries().for_each(|(major, minor, _)| {
            counts.rows += 1;
            counts.major[major] += 1;
            counts.minor[minor] += 1;
        });
        counts
    }

    /// Returns the transposed matrix.
    pub fn transpose(self) -> Self {
        Self { major: self.minor, minor: self.major }
    }
}
