//! Sums of products of pairs that rows of a third side choose.

use arrow::array::Float64Array;
use arrow::buffer::BooleanBuffer;
use std::ops::Range;

use crate::dense::Filled;
use crate::entries::Factor;
use crate::keys::{NONE, Positions};
use crate::runs::{Entry, Runs};
use crate::sparse::Sparse;

/// The rows that choose pairs of runs.
#[derive(Debug)]
pub struct Choice {
    /// The runs of each side, by row.
    pub pairs: [Positions; 2],
    /// The group of each row.
    pub groups: Positions,
    /// Which pairs of runs have rows.
    pub meet: Meet,
}

/// Which pairs of runs have rows.
#[derive(Debug)]
pub enum Meet {
    /// Those that have rows in common.
    Common,
    /// Those whose run of the side of this number has rows, whether it has partners or not. It is known by run.
    Either(usize, Vec<bool>),
}

/// The sums of groups.
#[derive(Debug)]
pub struct Sums {
    /// Whether a group has rows.
    pub there: Vec<bool>,
    /// Whether a product of a group is not NULL.
    pub known: Vec<bool>,
    /// The sums, 0 where there is none.
    pub sums: Vec<f64>,
}

/// What two runs have in common.
#[derive(Debug, Clone, Copy)]
struct Common {
    there: bool,
    sum: Option<f64>,
}

impl Choice {
    /// The sums by the runs themselves, for rows with these factors.
    pub fn by_runs(&self, factor: &Factor, left: &Runs, right: &Runs) -> Sums {
        let mut sums = Sums::of(self.groups.count);
        for row in self.order(factor) {
            let (Some((p, q)), group) = (self.pair(row), self.groups.of_rows[row]) else { continue };
            let common = dot(left.run(p), right.run(q), factor.of(row));
            self.add(&mut sums, group as usize, (p, q), common);
        }
        sums
    }

    /// The same by dense arrays, in blocks of about so many elements.
    pub fn by_arrays(&self, factor: &Factor, left: &Filled, right: &Filled, size: usize) -> Sums {
        let mut sums = Sums::of(self.groups.count);
        let blocks = left.blocks(right, size);
        if self.groups.count == self.groups.of_rows.len() && blocks.len() == 1 {
            let rows = 0..self.groups.of_rows.len();
            blocks.for_each(|block| self.add_block(&mut sums, rows.clone(), factor, [left, right], block));
            return sums;
        }
        let order = self.order(factor);
        let mut rows = order.as_slice();
        for block in blocks {
            // Rows without a run are the last.
            let (within, others) = rows.split_at(rows.partition_point(|row| self.run(*row) < block.end));
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
        sums: &mut Sums,
        rows: impl Iterator<Item = usize>,
        factor: &Factor,
        [left, right]: [&Filled; 2],
        block: Range<usize>,
    ) {
        let block = left.block(right, block);
        let rows = rows.filter_map(|row| Some((row, self.groups.of_rows[row] as usize, self.pair(row)?)));
        if let (Some(product), true) = (block.complete(), factor.nulls.is_empty() && factor.is_finite()) {
            for (row, group, (p, q)) in rows {
                sums.there[group] = true;
                sums.known[group] = true;
                sums.sums[group] += product[block.place(p, q)] * factor.values[row];
            }
            return;
        }
        for (row, group, (p, q)) in rows {
            let sum = match factor.of(row) {
                // Infinity times a sum is not the sum of infinities.
                Some(factor) if !factor.is_finite() => left.scaled(right, [p, q], factor),
                Some(factor) => block.sum(p, q).map(|sum| sum * factor),
                None => None,
            };
            self.add(sums, group, (p, q), Common { there: block.has(p, q), sum });
        }
    }

    /// The same by the products of whole runs, of which rows choose. The runs of the right side are by the inner position.
    pub fn by_products(&self, factor: &Factor, left: &Runs, right: &Runs) -> Sums {
        let mut sums = Sums::of(self.groups.count);
        let mut products = Sparse::new(right.minors, false);
        let mut of = None;
        for row in self.order(factor) {
            let Some((p, q)) = self.pair(row) else { continue };
            if of != Some(p) {
                products.forget();
                products.add_all(left.run(p), right);
                of = Some(p);
            }
            let common = match factor.of(row) {
                // Infinity times a sum is not the sum of infinities.
                Some(factor) if !factor.is_finite() => {
                    Common { there: products.has(q), sum: scaled(left.run(p), right, q, factor) }
                }
                Some(factor) => Common { there: products.has(q), sum: products.sum(q).map(|sum| sum * factor) },
                None => Common { there: products.has(q), sum: None },
            };
            self.add(&mut sums, self.groups.of_rows[row] as usize, (p, q), common);
        }
        sums
    }

    /// The run of the left side that a row chooses, one behind all if it has none.
    fn run(&self, row: usize) -> usize {
        self.pairs[0].of_rows[row] as usize
    }

    /// The runs that a row chooses.
    fn pair(&self, row: usize) -> Option<(usize, usize)> {
        let [p, q] = [&self.pairs[0], &self.pairs[1]].map(|positions| positions.of_rows[row]);
        (p != NONE && q != NONE).then_some((p as usize, q as usize))
    }

    fn add(&self, sums: &mut Sums, group: usize, (p, q): (usize, usize), common: Common) {
        sums.there[group] |= match &self.meet {
            Meet::Common => common.there,
            Meet::Either(0, has_rows) => has_rows[p],
            Meet::Either(_, has_rows) => has_rows[q],
        };
        if let Some(sum) = common.sum {
            sums.known[group] = true;
            sums.sums[group] += sum;
        }
    }

    /// The rows by the runs of the left side. Those of one group are in an order of their own, so that sums over them are the same from
    /// run to run.
    fn order(&self, factor: &Factor) -> Vec<usize> {
        let [p, q] = [&self.pairs[0], &self.pairs[1]];
        let rows = p.of_rows.len();
        if self.groups.count < rows {
            let mut order: Vec<_> = (0..rows).collect();
            let key = |row: usize| (p.of_rows[row], q.of_rows[row], factor.of(row).map(f64::to_bits));
            order.sort_by_key(|row| key(*row));
            return order;
        }
        let mut starts = vec![0; p.count + 2];
        let place = |row: usize| (p.of_rows[row] as usize).min(p.count);
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
    pub fn steps(&self, left: &[u32], right: &[u32]) -> usize {
        let [p, q] = [&self.pairs[0], &self.pairs[1]].map(|positions| positions.of_rows.iter());
        let pairs = p.zip(q).filter(|(p, q)| **p != NONE && **q != NONE);
        pairs.map(|(p, q)| left[*p as usize] as usize + right[*q as usize] as usize).sum()
    }
}

impl Sums {
    fn of(groups: usize) -> Self {
        Self { there: vec![false; groups], known: vec![false; groups], sums: vec![0.0; groups] }
    }

    /// The sums of some groups as an array.
    pub fn part(&self, groups: Range<usize>) -> Float64Array {
        let known = &self.known[groups.clone()];
        let nulls = BooleanBuffer::collect_bool(known.len(), |group| known[group]);
        Float64Array::new(self.sums[groups].to_vec().into(), Some(nulls.into()))
    }

    /// The memory that so many groups take.
    pub fn bytes(groups: usize) -> usize {
        groups * (size_of::<f64>() + 2)
    }
}

/// The products of the rows that a run and a column have in common, each times a factor.
fn scaled(left: &[Entry], right: &Runs, column: usize, factor: f64) -> Option<f64> {
    let mut sum = None;
    for entry in left {
        let others = right.run(entry.minor as usize).iter().filter(|other| other.minor as usize == column);
        for other in others.filter(|other| entry.known && other.known) {
            sum = Some(sum.unwrap_or(0.0) + entry.factor * other.factor * factor);
        }
    }
    sum
}

/// The products of the rows that two runs have in common, each times a factor.
fn dot(left: &[Entry], right: &[Entry], factor: Option<f64>) -> Common {
    let mut common = Common { there: false, sum: None };
    let (mut left, mut right) = (left, right);
    while let (Some(a), Some(b)) = (left.first(), right.first()) {
        if a.minor < b.minor {
            left = &left[1..];
        } else if a.minor > b.minor {
            right = &right[1..];
        } else {
            common.there = true;
            // Rows of one place each meet all of the other side.
            for other in right.iter().take_while(|other| other.minor == a.minor) {
                if let Some(factor) = factor.filter(|_| a.known && other.known) {
                    common.sum = Some(common.sum.unwrap_or(0.0) + a.factor * other.factor * factor);
                }
            }
            left = &left[1..];
        }
    }
    common
}
