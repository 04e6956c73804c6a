//! Computing a sum from the rows of its inputs: encode keys, choose a kernel, multiply.

use arrow::array::{Array, BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::datatypes::SchemaRef;
use datafusion_common::{Result, internal_err};
use datafusion_execution::memory_pool::MemoryReservation;
use std::sync::Arc;

use crate::accumulator::SparseAccumulator;
use crate::coo::Factor;
use crate::cost::{CostEstimate, Kernel};
use crate::csr::{self, CsrMatrix};
use crate::dense::{Block, DenseMatrix};
use crate::digest::KeyDigest;
use crate::encoding_cache::{CachedEncoding, EncodedRows, EncodingCache, FactorHistory};
use crate::inputs::InputRows;
use crate::join_index::JoinIndex;
use crate::join_index_cache::get_or_build;
use crate::key_codes::{KeyCodes, NO_CODE};
use crate::option::Contractions;
use crate::pairs::{self, PairKernel, PairSums};
use crate::sampled::{GroupSums, SampledProduct};
use crate::spec::{ContractionSpec, GroupKind};

/// The rows of a sum, in batches.
pub enum SumBatches {
    /// All pairs of groups, computed one batch at a time.
    Pairs(Box<PairSums>),
    /// All batches, the first one last.
    Rows(Vec<RecordBatch>),
}

/// The context of one execution of a sum.
pub struct SumContext<'s> {
    /// The sum.
    pub spec: &'s ContractionSpec,
    /// How to compute it.
    pub mode: Contractions,
    /// The reservation of its memory.
    pub reservation: &'s MemoryReservation,
    /// The encodings that the last execution has stored.
    pub cache: &'s EncodingCache,
    /// The schema of the result.
    pub schema: SchemaRef,
}

/// The kernel of a sum, for its metrics.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct KernelUse {
    /// The kernel.
    pub kernel: Kernel,
    /// Its estimated cost.
    pub cost: CostEstimate,
}

/// The memory of the codes and the factor of a row.
const BYTES_PER_ROW: usize = 64;

impl SumContext<'_> {
    /// Computes the sum. Returns `None` if the fallback plan has to: memory has run out, or keys have no codes.
    pub fn compute(&self, inputs: &[Vec<RecordBatch>]) -> Result<Option<(SumBatches, Option<KernelUse>)>> {
        let cached = self.cache.take();
        let rows: usize = inputs.iter().flatten().map(RecordBatch::num_rows).sum();
        if rows >= NO_CODE as usize / 8 || self.reservation.try_grow(BYTES_PER_ROW * rows).is_err() {
            return Ok(None);
        }
        let sides = inputs.iter().enumerate().map(|(side, batches)| InputRows::try_new(self.spec, side, batches));
        let sides: Vec<_> = sides.collect::<Result<_>>()?;
        let required = match self.spec.kind {
            GroupKind::Pairs => 0..2,
            GroupKind::Sampled { by, .. } => by..by + 1,
        };
        if sides[required].iter().any(|side| side.count == 0) {
            return Ok(Some((SumBatches::Rows(vec![]), None)));
        }
        // Keys that cannot be hashed are not cached.
        let keys = self.cache.mark_executed().then(|| KeyDigest::try_new(&sides).ok()).flatten();
        let Some(mut rows) = self.encode_rows(cached, &sides, keys.as_ref())? else { return Ok(None) };
        let result = match self.spec.kind {
            GroupKind::Pairs => self.sum_pairs(&sides, &mut rows)?,
            GroupKind::Sampled { by, .. } => self.sum_sampled(by, &sides, &mut rows)?,
        };
        if let Some(keys) = keys {
            self.cache.store(keys, rows, self.reservation);
        }
        Ok(result)
    }

    /// Encodes rows, or takes the codes of the last execution if the keys are the same. Returns `None` if a key has no code.
    fn encode_rows(
        &self,
        cached: Option<CachedEncoding>,
        sides: &[InputRows],
        keys: Option<&KeyDigest>,
    ) -> Result<Option<EncodedRows>> {
        let Some(keys) = keys else {
            let index = JoinIndex::try_new(self.spec, sides)?.map(Arc::new);
            return Ok(index.map(|index| EncodedRows { index, factors: vec![], will_be_stored: false }));
        };
        if let Some(rows) = cached.and_then(|cached| cached.if_keys_match(keys)) {
            return Ok(Some(rows));
        }
        let index = get_or_build(self.spec, sides, keys)?;
        Ok(index.map(|index| EncodedRows { index, factors: vec![], will_be_stored: true }))
    }

    fn sum_pairs(
        &self,
        sides: &[InputRows],
        rows: &mut EncodedRows,
    ) -> Result<Option<(SumBatches, Option<KernelUse>)>> {
        let index = Arc::clone(&rows.index);
        let [left, right] = [&sides[0], &sides[1]];
        let keys = [left.group_keys(&index.outer[0])?, right.group_keys(&index.outer[1])?];
        let is_single = self.spec.terms.iter().any(|term| term.single_precision);
        let arrays = if is_single { None } else { self.build_dense(sides, rows, pairs::BLOCK, &[]) };
        let (pair_kernel, kernel) = match arrays {
            Some(arrays) => (PairKernel::Dense(arrays), Kernel::Dense),
            None => match self.build_csr(&index, sides) {
                Some(terms) => (PairKernel::Sparse(terms), Kernel::Sparse),
                None => return Ok(None),
            },
        };
        let pairs = PairSums::new(pair_kernel, keys, self.spec.outputs.clone(), Arc::clone(&self.schema));
        Ok(Some((SumBatches::Pairs(Box::new(pairs)), Some(KernelUse { kernel, cost: index.cost }))))
    }

    /// Builds the sparse matrices of each term. Returns `None` if there is no memory for them.
    fn build_csr(&self, index: &JoinIndex, sides: &[InputRows]) -> Option<Vec<([CsrMatrix; 2], SparseAccumulator)>> {
        let [left, right] = [&sides[0], &sides[1]];
        let [groups, inner, columns] = index.cost.sizes;
        let bytes = csr::bytes_for(left.count + right.count, groups + inner) + SparseAccumulator::bytes_for(columns);
        self.reservation.try_grow(self.spec.terms.len() * bytes).ok()?;
        let terms = self.spec.terms.iter().enumerate().map(|(number, term)| {
            let matrices = [
                CsrMatrix::from_coo(index.left(), &left.factors[number]),
                CsrMatrix::from_coo(index.right(), &right.factors[number]),
            ];
            (matrices, SparseAccumulator::new(columns, term.single_precision))
        });
        Some(terms.collect())
    }

    /// Builds the dense matrices of each term. `sampling` has the factors of rows that sample the product. Returns `None` if the sparse
    /// kernel is cheaper, if the dense product differs from the sum over rows, or if there is no memory.
    fn build_dense(
        &self,
        sides: &[InputRows],
        rows: &mut EncodedRows,
        block: usize,
        sampling: &[Arc<Factor>],
    ) -> Option<Vec<[Arc<DenseMatrix>; 2]>> {
        let EncodedRows { index, factors, will_be_stored } = rows;
        let [left, inner, right] = index.cost.sizes;
        let bytes = DenseMatrix::bytes_for(left, inner)
            + DenseMatrix::bytes_for(inner, right)
            + Block::bytes_for(right, block.min(left * right));
        let bytes = self.spec.terms.len() * bytes;
        let mut before = std::mem::take(factors).into_iter();
        if index.cost.pick_kernel(self.mode) == Kernel::Sparse || self.reservation.try_grow(bytes).is_err() {
            return None;
        }
        let mut matrices: Vec<[Arc<DenseMatrix>; 2]> = vec![];
        for number in 0..self.spec.terms.len() {
            let before = before.next().unwrap_or_default();
            let term = self.term_matrices(sides, index, number, &before, &matrices);
            let finite = sampling.get(number).is_none_or(|factor| factor.is_finite());
            if !term[0].can_multiply(&term[1], finite) {
                self.reservation.shrink(bytes);
                factors.clear();
                return None;
            }
            if *will_be_stored {
                let [left, right] = before;
                let [of_left, of_right] = self.factors(sides, number);
                factors.push([left.update(&term[0], of_left), right.update(&term[1], of_right)]);
            }
            matrices.push(term);
        }
        Some(matrices)
    }

    /// Returns the factors of the two inputs that are multiplied.
    fn factors<'r>(&self, sides: &'r [InputRows], term: usize) -> [&'r Arc<Factor>; 2] {
        self.spec.kind.factor_sides().map(|side| &sides[side].factors[term])
    }

    /// Returns the dense matrices of a term, those of the last execution or of an earlier term where the factor is the same.
    fn term_matrices(
        &self,
        sides: &[InputRows],
        index: &JoinIndex,
        number: usize,
        before: &[FactorHistory; 2],
        earlier: &[[Arc<DenseMatrix>; 2]],
    ) -> [Arc<DenseMatrix>; 2] {
        let [left, right] = self.factors(sides, number);
        let [of_left, of_right] = index.occupancy();
        let known = |side: usize, factor: &Arc<Factor>| {
            let of_earlier = || earlier.iter().map(|term| &term[side]).find(|array| array.has_factor(factor)).cloned();
            before[side].cached_matrix(factor).or_else(of_earlier)
        };
        [
            known(0, left).unwrap_or_else(|| Arc::new(DenseMatrix::from_coo(of_left, index.left(), left))),
            known(1, right).unwrap_or_else(|| Arc::new(DenseMatrix::from_coo(of_right, index.right(), right))),
        ]
    }

    fn sum_sampled(
        &self,
        by: usize,
        sides: &[InputRows],
        rows: &mut EncodedRows,
    ) -> Result<Option<(SumBatches, Option<KernelUse>)>> {
        let index = Arc::clone(&rows.index);
        let Some(sampled) = &index.sampled else { return internal_err!("nothing says which sums are wanted") };
        let factors = &sides[by].factors;
        if self.reservation.try_grow(factors.len() * GroupSums::bytes_for(sampled.groups.count)).is_err() {
            return Ok(None);
        }
        // A product that is small beside the rows that sample it is one block: the rows then need no sorting.
        let block = pairs::BLOCK.max(4 * sampled.groups.codes.len());
        let (sums, kernel): (Vec<_>, _) = match self.build_dense(sides, rows, block, factors) {
            Some(terms) => {
                let terms = terms.iter().zip(factors);
                let sums = terms.map(|([left, right], factor)| sampled.sum_dense(factor, left, right, block));
                (sums.collect(), Kernel::Dense)
            }
            None => {
                let terms = 0..factors.len();
                let sums: Option<_> =
                    terms.map(|term| self.sum_term_sparse(&index, sampled, sides, [by, term])).collect();
                let Some(sums) = sums else { return Ok(None) };
                (sums, Kernel::Sparse)
            }
        };
        let rows = self.to_batches(&sides[by], &sampled.groups, &sums)?;
        Ok(Some((SumBatches::Rows(rows), Some(KernelUse { kernel, cost: index.cost }))))
    }

    /// Computes the sampled sums of a term sparsely. Returns `None` if there is no memory for them.
    fn sum_term_sparse(
        &self,
        index: &JoinIndex,
        sampled: &SampledProduct,
        sides: &[InputRows],
        [by, term]: [usize; 2],
    ) -> Option<GroupSums> {
        let (left, right) = (index.left(), index.right());
        let rows = left.major.codes.len() + right.major.codes.len();
        let sizes = index.cost.sizes;
        let bytes = csr::bytes_for(rows, sizes.iter().sum()) + SparseAccumulator::bytes_for(sizes[2]);
        self.reservation.try_grow(bytes).ok()?;
        let factor = &sides[by].factors[term];
        let [of_left, of_right] = self.spec.kind.factor_sides().map(|side| &sides[side].factors[term]);
        let left = CsrMatrix::from_coo(left, of_left);
        let sums = match index.prefers_dots {
            true => sampled.sum_by_dots(factor, &left, &CsrMatrix::from_coo(right.transpose(), of_right)),
            false => sampled.sum_by_rows(factor, &left, &CsrMatrix::from_coo(right, of_right)),
        };
        self.reservation.shrink(bytes);
        Some(sums)
    }

    /// Builds the batches of groups that have rows. The groups are the same for all terms.
    fn to_batches(&self, rows: &InputRows, groups: &KeyCodes, sums: &[GroupSums]) -> Result<Vec<RecordBatch>> {
        let Some(first_term) = sums.first() else { return internal_err!("a sum of no terms") };
        let has_rows = BooleanArray::from(first_term.has_rows.clone());
        let mut batches = vec![];
        let mut first = 0;
        for mut columns in rows.group_keys_by_batch(groups)? {
            let part = first..first + columns.first().map_or(groups.count, |(_, key)| key.len());
            columns.sort_by_key(|(position, _)| *position);
            let mut columns: Vec<_> = columns.into_iter().map(|(_, column)| column).collect();
            // Each batch has memory of its own: slices of one array would each count as the whole.
            let by_term: Vec<_> = sums.iter().map(|sums| sums.to_array(part.clone())).collect();
            for output in &self.spec.outputs {
                columns.push(output.evaluate(&by_term)?);
            }
            let batch = RecordBatch::try_new(Arc::clone(&self.schema), columns)?;
            batches.push(filter_record_batch(&batch, &has_rows.slice(part.start, part.len()))?);
            first = part.end;
        }
        // Batches are popped from the end.
        batches.reverse();
        Ok(batches)
    }
}
