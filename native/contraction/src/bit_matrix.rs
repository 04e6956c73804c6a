//! Boolean matrices.

use std::ops::Range;

/// A boolean matrix, one bit per element.
#[derive(Debug, Clone)]
pub struct BitMatrix {
    words: Vec<u64>,
    /// The number of words per row.
    width: usize,
}

impl BitMatrix {
    /// Creates a matrix of zeros.
    pub fn new(rows: usize, columns: usize) -> Self {
        let width = columns.div_ceil(64);
        Self { words: vec![0; rows * width], width }
    }

    fn row_range(&self, row: usize) -> Range<usize> {
        row * self.width..(row + 1) * self.width
    }

    /// Sets an element and returns whether it was 0.
    pub fn set(&mut self, row: usize, column: usize) -> bool {
        let word = &mut self.words[row * self.width + column / 64];
        let bit = 1 << (column % 64);
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    /// Counts the ones.
    pub fn count_ones(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Returns whether an element is 1.
    pub fn is_set(&self, row: usize, column: usize) -> bool {
        self.words[row * self.width + column / 64] >> (column % 64) & 1 == 1
    }

    /// Sets a row to its OR with a row of another matrix.
    pub fn or_row(&mut self, row: usize, other: &Self, from: usize) {
        let range = self.row_range(row);
        for (word, more) in self.words[range].iter_mut().zip(&other.words[other.row_range(from)]) {
            *word |= more;
        }
    }

    /// Iterates over the columns of the ones of a row, in ascending order.
    pub fn ones(&self, row: usize) -> impl Iterator<Item = usize> {
        self.words[self.row_range(row)].iter().enumerate().flat_map(|(word, bits)| {
            let mut rest = *bits;
            std::iter::from_fn(move || {
                let bit = rest.trailing_zeros() as usize;
                rest &= rest.wrapping_sub(1);
                (bit < 64).then_some(word * 64 + bit)
            })
        })
    }

    /// Returns the memory of a matrix in bytes.
    pub fn bytes_for(rows: usize, columns: usize) -> usize {
        rows * columns.div_ceil(64) * 8
    }
}
