//! Elements of a matrix product that the rows of a third input sample.
//!
//! The derivative of `Σ x w` by `w` is the product of `x` and the cotangents, but only where `w` has rows. That is a sampled dense-dense
//! matrix product (SDDMM) with its mask given by rows: row `r` samples the element `(p, q)`, multiplies it by its own factor, and adds it
//! to its group. There are three ways to compute it: a dot product for each row, whole rows of the product by [`SparseAccumulator`], or
//! blocks of the dense product.

use arrow::array::Float64Array;
use arrow::buffer::BooleanBuffer;
use std::ops::Range;

use crate::accumulator::SparseAccumulator;
use crate::coo::Factor;
use crate::csr::{CsrEntry, CsrMatrix};
use crate::dense::DenseMatrix;
use crate::key_codes::{KeyCodes, NO_CODE};

/// The rows that sample a product.
#[derive(Debug)]
pub struct SampledProduct {
    /// The row and the column of the element that each row samples.
    pub pairs: [KeyCodes; 2],
    /// The group of each row.
    pub groups: KeyCodes,
    /// Which elements have rows.
    pub existence: PairExistence,
}

/// Which elements of the product have rows.
#[derive(Debug)]
pub enum PairExistence {
    /// Those whose row and column have a common inner index, as in an inner join.
    Inner,
    /// Those whose row (0) or column (1) has entries, as in an outer join. By index, whether it has.
    Outer(usize, Vec<bool>),
}

/// The sums of groups.
#[derive(Debug)]
pub struct GroupSums {
    /// Whether each group has rows.
    pub has_rows: Vec<bool>,
    /// Whether each group has a product that is not NULL.
    pub has_value: Vec<bool>,
    /// The sums, 0 where there is none.
    pub sums: Vec<f64>,
}

/// An element of the product.
#[derive(Debug, Clone, Copy)]
struct PairSum {
    exists: bool,
    sum: Option<f64>,
}

impl SampledProduct {
    /// Computes each sampled element as the dot product of a row of the left matrix and a row of the transposed right one.
    pub fn sum_by_dots(&self, factor: &Factor, left: &CsrMatrix, right: &CsrMatrix) -> GroupSums {
        let mut sums = GroupSums::new(self.groups.count);
        for row in self.sort_rows(factor) {
            let (Some((p, q)), group) = (self.pair(row), self.groups.codes[row]) else { continue };
            let pair = dot(left.row(p), right.row(q), factor.get(row));
            self.add_pair(&mut sums, group as usize, (p, q), pair);
        }
        sums
    }

    /// Computes the sums from the dense product, in blocks of about `size` elements.
    pub fn sum_dense(&self, factor: &Factor, left: &DenseMatrix, right: &DenseMatrix, size: usize) -> GroupSums {
        let mut sums = GroupSums::new(self.groups.count);
        let blocks = left.row_blocks(right, size);
        if self.groups.count == self.groups.codes.len() && blocks.len() == 1 {
            let rows = 0..self.groups.codes.len();
            blocks.for_each(|block| self.add_block(&mut sums, rows.clone(), factor, [left, right], block));
            return sums;
        }
        let order = self.sort_rows(factor);
        let mut rows = order.as_slice();
        for block in blocks {
            // Rows that sample nothing are the last.
            let (within, others) = rows.split_at(rows.partition_point(|row| self.left_row(*row) < block.end));
            rows = others;
            if !within.is_empty() {
                self.add_block(&mut sums, within.iter().copied(), factor, [left, right], block);
            }
        }
        sums
    }

    /// Adds the elements that rows sample of a block of the dense product.
    fn add_block(
        &self,
        sums: &mut GroupSums,
        rows: impl Iterator<Item = usize>,
        factor: &Factor,
        [left, right]: [&DenseMatrix; 2],
        block: Range<usize>,
    ) {
        let block = left.multiply_rows(right, block);
        let rows = rows.filter_map(|row| Some((row, self.groups.codes[row] as usize, self.pair(row)?)));
        if let (Some(product), true) = (block.all_sums(), factor.nulls.is_empty() && factor.is_finite()) {
            for (row, group, (p, q)) in rows {
                sums.has_rows[group] = true;
                sums.has_value[group] = true;
                sums.sums[group] += product[block.offset(p, q)] * factor.values[row];
            }
            return;
        }
        for (row, group, (p, q)) in rows {
            let sum = match factor.get(row) {
                // ∞ times a sum is not the sum of infinities.
                Some(factor) if !factor.is_finite() => left.scaled_dot(right, [p, q], factor),
                Some(factor) => block.sum(p, q).map(|sum| sum * factor),
                None => None,
            };
            self.add_pair(sums, group, (p, q), PairSum { exists: block.is_occupied(p, q), sum });
        }
    }

    /// Computes whole rows of the product sparsely, and samples them.
    pub fn sum_by_rows(&self, factor: &Factor, left: &CsrMatrix, right: &CsrMatrix) -> GroupSums {
        let mut sums = GroupSums::new(self.groups.count);
        let mut accumulator = SparseAccumulator::new(right.minor_count, false);
        let mut current = None;
        for row in self.sort_rows(factor) {
            let Some((p, q)) = self.pair(row) else { continue };
            if current != Some(p) {
                accumulator.clear();
                accumulator.accumulate_row(left.row(p), right);
                current = Some(p);
            }
            let pair = match factor.get(row) {
                // ∞ times a sum is not the sum of infinities.
                Some(factor) if !factor.is_finite() => {
                    PairSum { exists: accumulator.is_occupied(q), sum: scaled_dot(left.row(p), right, q, factor) }
                }
                Some(factor) => {
                    PairSum { exists: accumulator.is_occupied(q), sum: accumulator.sum(q).map(|sum| sum * factor) }
                }
                None => PairSum { exists: accumulator.is_occupied(q), sum: None },
            };
            self.add_pair(&mut sums, self.groups.codes[row] as usize, (p, q), pair);
        }
        sums
    }

    /// Returns the row of the product that an input row samples, one behind the last if it samples none.
    fn left_row(&self, row: usize) -> usize {
        self.pairs[0].codes[row] as usize
    }

    /// Returns the element that a row samples.
    fn pair(&self, row: usize) -> Option<(usize, usize)> {
        let [p, q] = [&self.pairs[0], &self.pairs[1]].map(|positions| positions.codes[row]);
        (p != NO_CODE && q != NO_CODE).then_some((p as usize, q as usize))
    }

    fn add_pair(&self, sums: &mut GroupSums, group: usize, (p, q): (usize, usize), pair: PairSum) {
        sums.has_rows[group] |= match &self.existence {
            PairExistence::Inner => pair.exists,
            PairExistence::Outer(0, has_rows) => has_rows[p],
            PairExistence::Outer(_, has_rows) => has_rows[q],
        };
        if let Some(sum) = pair.sum {
            sums.has_value[group] = true;
            sums.sums[group] += sum;
        }
    }

    /// Sorts the input rows by the row of the product that they sample. Rows of one group are in an order of their values, so sums over
    /// them are the same in every execution.
    fn sort_rows(&self, factor: &Factor) -> Vec<usize> {
        let [p, q] = [&self.pairs[0], &self.pairs[1]];
        let rows = p.codes.len();
        if self.groups.count < rows {
            let mut order: Vec<_> = (0..rows).collect();
            let key = |row: usize| (p.codes[row], q.codes[row], factor.get(row).map(f64::to_bits));
            order.sort_by_key(|row| key(*row));
            return order;
        }
        let mut starts = vec![0; p.count + 2];
        let place = |row: usize| (p.codes[row] as usize).min(p.count);
        (0..rows).for_each(|row| starts[place(row) + 1] += 1);
        (0..=p.count).for_each(|run| starts[run + 1] += starts[run]);
        let mut order = vec![0; rows];
        for row in 0..rows {
            let start = &mut starts[place(row)];
            order[*start] = row;
            *start += 1;
        }
        order
    }

    /// Counts the entries that dot products would read, from the numbers of entries of each row and column.
    pub fn dot_steps(&self, left: &[u32], right: &[u32]) -> usize {
        let [p, q] = [&self.pairs[0], &self.pairs[1]].map(|positions| positions.codes.iter());
        let pairs = p.zip(q).filter(|(p, q)| **p != NO_CODE && **q != NO_CODE);
        pairs.map(|(p, q)| left[*p as usize] as usize + right[*q as usize] as usize).sum()
    }
}

impl GroupSums {
    fn new(groups: usize) -> Self {
        Self { has_rows: vec![false; groups], has_value: vec![false; groups], sums: vec![0.0; groups] }
    }

    /// Returns the sums of some groups as an array.
    pub fn to_array(&self, groups: Range<usize>) -> Float64Array {
        let valid = &self.has_value[groups.clone()];
        let nulls = BooleanBuffer::collect_bool(valid.len(), |group| valid[group]);
        Float64Array::new(self.sums[groups].to_vec().into(), Some(nulls.into()))
    }

    /// Returns the memory of sums in bytes.
    pub fn bytes_for(groups: usize) -> usize {
        groups * (size_of::<f64>() + 2)
    }
}

/// Computes an element of the product, each of whose terms is multiplied by a factor.
fn scaled_dot(left: &[CsrEntry], right: &CsrMatrix, column: usize, factor: f64) -> Option<f64> {
    let mut sum = None;
    for entry in left {
        let others = right.row(entry.minor as usize).iter().filter(|other| other.minor as usize == column);
        for other in others.filter(|other| entry.is_valid && other.is_valid) {
            sum = Some(sum.unwrap_or(0.0) + entry.factor * other.factor * factor);
        }
    }
    sum
}

/// Multiplies two sorted sparse vectors by merging them, each term multiplied by a factor.
fn dot(left: &[CsrEntry], right: &[CsrEntry], factor: Option<f64>) -> PairSum {
    let mut pair = PairSum { exists: false, sum: None };
    let (mut left, mut right) = (left, right);
    while let (Some(a), Some(b)) = (left.first(), right.first()) {
        if a.minor < b.minor {
            left = &left[1..];
        } else if a.minor > b.minor {
            right = &right[1..];
        } else {
            pair.exists = true;
            // Each entry meets all entries of the other side with the same index.
            for other in right.iter().take_while(|other| other.minor == a.minor) {
                if let Some(factor) = factor.filter(|_| a.is_valid && other.is_valid) {
                    pair.sum = Some(pair.sum.unwrap_or(0.0) + a.factor * other.factor * factor);
                }
            }
            left = &left[1..];
        }
    }
    pair
}
