//! The sums of all pairs of groups of two inputs.

use arrow::array::{ArrayRef, Float64Array, RecordBatch, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::SchemaRef;
use datafusion_common::Result;
use std::ops::Range;
use std::sync::Arc;

use crate::dense::Right;
use crate::runs::Runs;
use crate::sparse::Sparse;

/// Sums that are computed one block of groups of the left side after the other.
pub struct Pairs {
    left: Runs,
    way: Way,
    /// The keys of the groups of each side, each with its position among the columns of the result.
    keys: [Vec<(usize, ArrayRef)>; 2],
    blocks: Box<dyn Iterator<Item = Range<usize>> + Send>,
    schema: SchemaRef,
}

/// How they are computed.
pub enum Way {
    /// By dense arrays.
    Dense(Right),
    /// By runs of the right side by the inner position.
    Sparse(Runs, Sparse),
}

/// So many pairs of rows of runs go into a block, more or less.
const STEPS: usize = 1 << 16;

impl Pairs {
    /// The sums of these rows, as rows of a schema.
    pub fn new(left: Runs, way: Way, keys: [Vec<(usize, ArrayRef)>; 2], schema: SchemaRef) -> Self {
        let runs = left.majors();
        let blocks: Box<dyn Iterator<Item = _> + Send> = match &way {
            Way::Dense(right) => Box::new(right.blocks(runs)),
            Way::Sparse(right, _) => {
                let steps = left.len() * right.len() / (runs.max(1) * right.majors().max(1));
                let size = (STEPS / steps.max(1)).max(1);
                Box::new((0..runs).step_by(size).map(move |first| first..runs.min(first + size)))
            }
        };
        Self { left, way, keys, blocks, schema }
    }

    /// The next rows, none after the last.
    pub fn next(&mut self) -> Result<Option<RecordBatch>> {
        let Some(runs) = self.blocks.next() else { return Ok(None) };
        let mut found = Found::default();
        match &mut self.way {
            Way::Dense(right) => {
                let block = right.block(&self.left, runs.clone());
                for run in runs {
                    block.sums_of(run).for_each(|(column, sum)| found.add(run, column, sum));
                }
            }
            Way::Sparse(right, sparse) => {
                for run in runs {
                    let sums = sparse.sums_of(self.left.run(run), right);
                    sums.for_each(|(column, sum)| found.add(run, column, sum));
                }
            }
        }
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
        columns.push(Arc::new(Float64Array::from(found.sums)));
        Ok(RecordBatch::try_new(Arc::clone(&self.schema), columns)?)
    }
}

/// Sums with the groups that they are of.
#[derive(Debug, Default)]
struct Found {
    left: Vec<u32>,
    right: Vec<u32>,
    sums: Vec<Option<f64>>,
}

impl Found {
    fn add(&mut self, left: usize, right: usize, sum: Option<f64>) {
        self.left.push(left as u32);
        self.right.push(right as u32);
        self.sums.push(sum);
    }
}
