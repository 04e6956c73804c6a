//! The sums of all pairs of groups of two inputs.

use arrow::array::{ArrayRef, Float64Builder, RecordBatch, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::SchemaRef;
use datafusion_common::Result;
use std::iter::repeat_n;
use std::ops::Range;
use std::sync::Arc;

use crate::dense::{Block, Filled};
use crate::outputs::Output;
use crate::runs::Runs;
use crate::sparse::Sparse;

/// Sums that are computed one block of groups of the left side after the other.
pub struct Pairs {
    way: Way,
    /// The keys of the groups of each side, each with its position among the columns of the result.
    keys: [Vec<(usize, ArrayRef)>; 2],
    blocks: std::vec::IntoIter<Range<usize>>,
    outputs: Vec<Output>,
    schema: SchemaRef,
}

/// How they are computed, by term.
pub enum Way {
    /// By dense arrays.
    Dense(Vec<[Arc<Filled>; 2]>),
    /// By runs, those of the right side by the inner position.
    Sparse(Vec<([Runs; 2], Sparse)>),
}

/// So many sums, or pairs of rows of runs, go into a block, more or less.
pub const BLOCK: usize = 1 << 16;

impl Pairs {
    /// The sums of these rows, as rows of a schema.
    pub fn new(way: Way, keys: [Vec<(usize, ArrayRef)>; 2], outputs: Vec<Output>, schema: SchemaRef) -> Self {
        // All terms have the same groups.
        let blocks: Vec<_> = match &way {
            Way::Dense(terms) => terms.first().map(|[left, right]| left.blocks(right, BLOCK).collect()),
            Way::Sparse(terms) => terms.first().map(|(runs, _)| blocks_of_runs(runs).collect()),
        }
        .unwrap_or_default();
        let blocks = blocks.into_iter();
        Self { way, keys, blocks, outputs, schema }
    }

    /// The next rows, none after the last.
    pub fn next(&mut self) -> Result<Option<RecordBatch>> {
        let Some(runs) = self.blocks.next() else { return Ok(None) };
        let found = match &mut self.way {
            Way::Dense(terms) => of_arrays(terms, runs),
            Way::Sparse(terms) => of_runs(terms, runs),
        };
        self.rows(found).map(Some)
    }

    fn rows(&self, found: Found) -> Result<RecordBatch> {
        let positions = [found.left, found.right].map(UInt32Array::from);
        let mut columns = vec![];
        for (keys, positions) in self.keys.iter().zip(&positions) {
            for (place, key) in keys {
                columns.push((*place, take(key, positions, None)?));
            }
        }
        columns.sort_by_key(|(place, _)| *place);
        let mut columns: Vec<_> = columns.into_iter().map(|(_, column)| column).collect();
        let sums: Vec<_> = found.sums.into_iter().map(|mut sums| sums.finish()).collect();
        for output in &self.outputs {
            columns.push(output.column(&sums)?);
        }
        Ok(RecordBatch::try_new(Arc::clone(&self.schema), columns)?)
    }
}

fn blocks_of_runs([left, right]: &[Runs; 2]) -> impl Iterator<Item = Range<usize>> + use<> {
    let runs = left.majors();
    let steps = left.len() * right.len() / (runs.max(1) * right.majors().max(1));
    let size = (BLOCK / steps.max(1)).max(1);
    (0..runs).step_by(size).map(move |first| first..runs.min(first + size))
}

/// Sums with the groups that they are of.
#[derive(Debug)]
struct Found {
    left: Vec<u32>,
    right: Vec<u32>,
    /// By term.
    sums: Vec<Float64Builder>,
}

/// The sums of some rows of arrays.
fn of_arrays(terms: &[[Arc<Filled>; 2]], rows: Range<usize>) -> Found {
    let blocks: Vec<_> = terms.iter().map(|[left, right]| left.block(right, rows.clone())).collect();
    let mut found = Found::of(terms.len());
    let complete: Option<Vec<_>> = blocks.iter().map(Block::complete).collect();
    match (complete, blocks.first()) {
        (Some(complete), _) => found.add_all(rows, &complete),
        (None, Some(first)) => {
            for row in rows {
                for column in first.columns_of(row) {
                    found.add(row, column, blocks.iter().map(|block| block.sum(row, column)));
                }
            }
        }
        (None, None) => {}
    }
    found
}

/// The sums of some runs. A run has the same groups for all terms.
fn of_runs(terms: &mut [([Runs; 2], Sparse)], runs: Range<usize>) -> Found {
    let mut found = Found::of(terms.len());
    for run in runs {
        for (number, ([left, right], sparse)) in terms.iter_mut().enumerate() {
            for (column, sum) in sparse.sums_of(left.run(run), right) {
                if number == 0 {
                    found.left.push(run as u32);
                    found.right.push(column as u32);
                }
                found.sums[number].append_option(sum);
            }
        }
    }
    found
}

impl Found {
    fn of(terms: usize) -> Self {
        Self { left: vec![], right: vec![], sums: (0..terms).map(|_| Float64Builder::new()).collect() }
    }

    /// Adds the sums of all pairs of groups, those of the left side being these.
    fn add_all(&mut self, left: Range<usize>, sums: &[&[f64]]) {
        let columns = sums.first().map_or(0, |sums| sums.len()) / left.len().max(1);
        for (found, sums) in self.sums.iter_mut().zip(sums) {
            found.append_slice(sums);
        }
        for run in left {
            self.left.extend(repeat_n(run as u32, columns));
            self.right.extend(0..columns as u32);
        }
    }

    fn add(&mut self, left: usize, right: usize, sums: impl Iterator<Item = Option<f64>>) {
        self.left.push(left as u32);
        self.right.push(right as u32);
        self.sums.iter_mut().zip(sums).for_each(|(found, sum)| found.append_option(sum));
    }
}
