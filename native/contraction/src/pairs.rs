//! The sums of all pairs of groups of two inputs.

use arrow::array::{ArrayRef, Float64Builder, RecordBatch, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::SchemaRef;
use datafusion_common::Result;
use std::iter::repeat_n;
use std::ops::Range;
use std::sync::Arc;

use crate::accumulator::SparseAccumulator;
use crate::csr::CsrMatrix;
use crate::dense::{Block, DenseMatrix};
use crate::outputs::Output;

/// A product of two matrices as batches of rows, computed in blocks.
pub struct PairSums {
    kernel: PairKernel,
    /// The keys of the groups of each input, each with its position among the columns of the result.
    keys: [Vec<(usize, ArrayRef)>; 2],
    blocks: std::vec::IntoIter<Range<usize>>,
    outputs: Vec<Output>,
    schema: SchemaRef,
}

/// The two matrices of each term.
pub enum PairKernel {
    /// Dense matrices.
    Dense(Vec<[Arc<DenseMatrix>; 2]>),
    /// Sparse matrices, with the accumulator of a row of their product.
    Sparse(Vec<([CsrMatrix; 2], SparseAccumulator)>),
}

/// About how many elements, or pairs of entries, a block has.
pub const BLOCK: usize = 1 << 16;

impl PairSums {
    /// Divides the product into blocks.
    pub fn new(kernel: PairKernel, keys: [Vec<(usize, ArrayRef)>; 2], outputs: Vec<Output>, schema: SchemaRef) -> Self {
        // All terms have the same groups.
        let blocks: Vec<_> = match &kernel {
            PairKernel::Dense(terms) => terms.first().map(|[left, right]| left.row_blocks(right, BLOCK).collect()),
            PairKernel::Sparse(terms) => terms.first().map(|(rows, _)| row_blocks(rows).collect()),
        }
        .unwrap_or_default();
        let blocks = blocks.into_iter();
        Self { kernel, keys, blocks, outputs, schema }
    }

    /// Computes the next batch, `None` after the last.
    pub fn next(&mut self) -> Result<Option<RecordBatch>> {
        let Some(rows) = self.blocks.next() else { return Ok(None) };
        let found = match &mut self.kernel {
            PairKernel::Dense(terms) => multiply_dense(terms, rows),
            PairKernel::Sparse(terms) => multiply_sparse(terms, rows),
        };
        self.to_batch(found).map(Some)
    }

    fn to_batch(&self, found: PairRows) -> Result<RecordBatch> {
        let positions = [found.left, found.right].map(UInt32Array::from);
        let mut columns = vec![];
        for (keys, positions) in self.keys.iter().zip(&positions) {
            for (position, key) in keys {
                columns.push((*position, take(key, positions, None)?));
            }
        }
        columns.sort_by_key(|(position, _)| *position);
        let mut columns: Vec<_> = columns.into_iter().map(|(_, column)| column).collect();
        let sums: Vec<_> = found.sums.into_iter().map(|mut sums| sums.finish()).collect();
        for output in &self.outputs {
            columns.push(output.evaluate(&sums)?);
        }
        Ok(RecordBatch::try_new(Arc::clone(&self.schema), columns)?)
    }
}

fn row_blocks([left, right]: &[CsrMatrix; 2]) -> impl Iterator<Item = Range<usize>> + use<> {
    let rows = left.major_count();
    let steps = left.len() * right.len() / (rows.max(1) * right.major_count().max(1));
    let size = (BLOCK / steps.max(1)).max(1);
    (0..rows).step_by(size).map(move |first| first..rows.min(first + size))
}

/// Elements of the product with their coordinates.
#[derive(Debug)]
struct PairRows {
    left: Vec<u32>,
    right: Vec<u32>,
    /// By term.
    sums: Vec<Float64Builder>,
}

/// Multiplies some rows of dense matrices.
fn multiply_dense(terms: &[[Arc<DenseMatrix>; 2]], rows: Range<usize>) -> PairRows {
    let blocks: Vec<_> = terms.iter().map(|[left, right]| left.multiply_rows(right, rows.clone())).collect();
    let mut found = PairRows::new(terms.len());
    let all_sums: Option<Vec<_>> = blocks.iter().map(Block::all_sums).collect();
    match (all_sums, blocks.first()) {
        (Some(all_sums), _) => found.add_rows(rows, &all_sums),
        (None, Some(first)) => {
            for row in rows {
                for column in first.occupied_columns(row) {
                    found.add_pair(row, column, blocks.iter().map(|block| block.sum(row, column)));
                }
            }
        }
        (None, None) => {}
    }
    found
}

/// Multiplies some rows of sparse matrices. The elements of a row are the same for all terms.
fn multiply_sparse(terms: &mut [([CsrMatrix; 2], SparseAccumulator)], rows: Range<usize>) -> PairRows {
    let mut found = PairRows::new(terms.len());
    for row in rows {
        for (number, ([left, right], accumulator)) in terms.iter_mut().enumerate() {
            for (column, sum) in accumulator.multiply_row(left.row(row), right) {
                if number == 0 {
                    found.left.push(row as u32);
                    found.right.push(column as u32);
                }
                found.sums[number].append_option(sum);
            }
        }
    }
    found
}

impl PairRows {
    fn new(terms: usize) -> Self {
        Self { left: vec![], right: vec![], sums: (0..terms).map(|_| Float64Builder::new()).collect() }
    }

    /// Adds all elements of some rows.
    fn add_rows(&mut self, left: Range<usize>, sums: &[&[f64]]) {
        let columns = sums.first().map_or(0, |sums| sums.len()) / left.len().max(1);
        for (found, sums) in self.sums.iter_mut().zip(sums) {
            found.append_slice(sums);
        }
        for row in left {
            self.left.extend(repeat_n(row as u32, columns));
            self.right.extend(0..columns as u32);
        }
    }

    fn add_pair(&mut self, left: usize, right: usize, sums: impl Iterator<Item = Option<f64>>) {
        self.left.push(left as u32);
        self.right.push(right as u32);
        self.sums.iter_mut().zip(sums).for_each(|(found, sum)| found.append_option(sum));
    }
}
