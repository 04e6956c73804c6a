//! Sums of products of pairs that rows of a third side choose.

use arrow::array::Float64Array;
use arrow::buffer::BooleanBuffer;
use std::ops::Range;

use crate::accumulator::SparseAccumulator;
use crate::coo::Factor;
use crate::csr::{CsrEntry, CsrMatrix};
use crate::dense::DenseMatrix;
use crate::key_codes::{KeyCodes, NO_CODE};

/// The rows that choose pairs of runs.
#[derive(Debug)]
pub struct SampledProduct {
    /// The runs of each side, by row.
    pub pairs: [KeyCodes; 2],
    /// The group of each row.
    pub groups: KeyCodes,
    /// Which pairs of runs have rows.
    pub existence: PairExistence,
}

/// Which pairs of runs have rows.
#[derive(Debug)]
pub enum PairExistence {
    /// Those that have rows in common.
    Inner,
    /// Those whose run of the side of this number has rows, whether it has partners or not. It is known by run.
    Outer(usize, Vec<bool>),
}

/// The sums of groups.
#[derive(Debug)]
pub struct GroupSums {
    /// Whether a group has rows.
    pub has_rows: Vec<bool>,
    /// Whether a product of a group is not NULL.
    pub has_value: Vec<bool>,
    /// The sums, 0 where there is none.
    pub sums: Vec<f64>,
}

/// What two runs have in common.
#[derive(Debug, Clone, Copy)]
struct PairSum {
    exists: bool,
    sum: Option<f64>,
}

impl SampledProduct {
    /// The sums by the runs themselves, for rows with these factors.
    pub fn sum_by_dots(&self, factor: &Factor, left: &CsrMatrix, right: &CsrMatrix) -> GroupSums {
        let mut sums = GroupSums::new(self.groups.count);
        for row in self.sort_rows(factor) {
            let (Some((p, q)), group) = (self.pair(row), self.groups.codes[row]) else { continue };
            let pair = dot(left.row(p), right.row(q), factor.get(row));
            self.add_pair(&mut sums, group as usize, (p, q), pair);
        }
        sums
    }

    /// The same by dense arrays, in blocks of about so many elements.
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
            // Rows without a run are the last.
            let (within, others) = rows.split_at(rows.partition_point(|row| self.left_row(*row) < block.end));
            rows = others;
            if !within.is_empty() {
                self.add_block(&mut sums, within.iter().copied(), factor, [left, right], block);
            }
        }
        sums
    }

    /// Adds what rows choose of a block of the product of arrays.
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
                // Infinity times a sum is not the sum of infinities.
                Some(factor) if !factor.is_finite() => left.scaled_dot(right, [p, q], factor),
                Some(factor) => block.sum(p, q).map(|sum| sum * factor),
                None => None,
            };
            self.add_pair(sums, group, (p, q), PairSum { exists: block.is_occupied(p, q), sum });
        }
    }

    /// The same by the products of whole runs, of which rows choose. The runs of the right side are by the inner position.
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
                // Infinity times a sum is not the sum of infinities.
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

    /// The run of the left side that a row chooses, one behind all if it has none.
    fn left_row(&self, row: usize) -> usize {
        self.pairs[0].codes[row] as usize
    }

    /// The runs that a row chooses.
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

    /// The rows by the runs of the left side. Those of one group are in an order of their own, so that sums over them are the same from
    /// run to run.
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

    /// How many rows of runs are gone through, if it is by these, of which the rows are counted.
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

    /// The sums of some groups as an array.
    pub fn to_array(&self, groups: Range<usize>) -> Float64Array {
        let valid = &self.has_value[groups.clone()];
        let nulls = BooleanBuffer::collect_bool(valid.len(), |group| valid[group]);
        Float64Array::new(self.sums[groups].to_vec().into(), Some(nulls.into()))
    }

    /// The memory that so many groups take.
    pub fn bytes_for(groups: usize) -> usize {
        groups * (size_of::<f64>() + 2)
    }
}

/// The products of the rows that a run and a column have in common, each times a factor.
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

/// The products of the rows that two runs have in common, each times a factor.
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
            // Rows of one place each meet all of the other side.
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
