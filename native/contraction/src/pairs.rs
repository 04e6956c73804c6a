//! The sums of all pairs of groups of two inputs.

use arrow::array::{ArrayRef, Float64Builder, RecordBatch, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::SchemaRef;
use datafusion_common::Result;
use std::iter::repeat_n;
use std::ops::Range;
use std::sync::Arc;

use crate::dense::Filled;
use crate::runs::Runs;
use crate::sparse::Sparse;

/// Sums that are computed one block of groups of the left side after the other.
pub struct Pairs {
    way: Way,
    /// The keys of the groups of each side, each with its position among the columns of the result.
    keys: [Vec<(usize, ArrayRef)>; 2],
    blocks: Box<dyn Iterator<Item = Range<usize>> + Send>,
    schema: SchemaRef,
}

/// How they are computed.
pub enum Way {
    /// By dense arrays.
    Dense([Arc<Filled>; 2]),
    /// By runs, those of the right side by the inner position.
    Sparse([Runs; 2], Sparse),
}

/// So many sums, or pairs of rows of runs, go into a block, more or less.
pub const BLOCK: usize = 1 << 16;

impl Pairs {
    /// The sums of these rows, as rows of a schema.
    pub fn new(way: Way, keys: [Vec<(usize, ArrayRef)>; 2], schema: SchemaRef) -> Self {
        let blocks: Box<dyn Iterator<Item = _> + Send> = match &way {
            Way::Dense([left, right]) => Box::new(left.blocks(right, BLOCK)),
            Way::Sparse([left, right], _) => {
                let runs = left.majors();
                let steps = left.len() * right.len() / (runs.max(1) * right.majors().max(1));
                let size = (BLOCK / steps.max(1)).max(1);
                Box::new((0..runs).step_by(size).map(move |first| first..runs.min(first + size)))
            }
        };
        Self { way, keys, blocks, schema }
    }

    /// The next rows, none after the last.
    pub fn next(&mut self) -> Result<Option<RecordBatch>> {
        let Some(runs) = self.blocks.next() else { return Ok(None) };
        let mut found = Found::default();
        match &mut self.way {
            Way::Dense([left, right]) => {
                let block = left.block(right, runs.clone());
                match block.complete() {
                    Some(sums) => found = Found::all(runs, sums),
                    None => runs.for_each(|run| {
                        block.sums_of(run).for_each(|(column, sum)| found.add(run, column, sum));
                    }),
                }
            }
            Way::Sparse([left, right], sparse) => runs.for_each(|run| {
                sparse.sums_of(left.run(run), right).for_each(|(column, sum)| found.add(run, column, sum));
            }),
        }
        self.rows(found).map(Some)
    }

    fn rows(&self, mut found: Found) -> Result<RecordBatch> {
        let positions = [found.left, found.right].map(UInt32Array::from);
        let mut columns = vec![];
        for (keys, positions) in self.keys.iter().zip(&positions) {
            for (place, key) in keys {
                columns.push((*place, take(key, positions, None)?));
            }
        }
        columns.sort_by_key(|(place, _)| *place);
        let mut columns: Vec<_> = columns.into_iter().map(|(_, column)| column).collect();
        columns.push(Arc::new(found.sums.finish()));
        Ok(RecordBatch::try_new(Arc::clone(&self.schema), columns)?)
    }
}

/// Sums with the groups that they are of.
#[derive(Debug, Default)]
struct Found {
    left: Vec<u32>,
    right: Vec<u32>,
    sums: Float64Builder,
}

impl Found {
    /// The sums of all pairs of groups, those of the left side being these.
    fn all(left: Range<usize>, sums: &[f64]) -> Self {
        let columns = sums.len() / left.len().max(1);
        let mut found = Self::default();
        found.sums.append_slice(sums);
        for run in left {
            found.left.extend(repeat_n(run as u32, columns));
            found.right.extend(0..columns as u32);
        }
        found
    }

    fn add(&mut self, left: usize, right: usize, sum: Option<f64>) {
        self.left.push(left as u32);
        self.right.push(right as u32);
        self.sums.append_option(sum);
    }
}
