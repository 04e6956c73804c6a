//! The index of a join: the codes of all rows, which depend on the keys alone.

use datafusion_common::Result;
use std::sync::{Arc, OnceLock};

use crate::coo::CooMatrix;
use crate::cost::CostEstimate;
use crate::dense::Occupancy;
use crate::inputs::{InputRows, encode_join_keys, intersect_codes};
use crate::key_codes::{KeyCodes, NO_CODE};
use crate::sampled::{PairExistence, SampledProduct};
use crate::spec::{ContractionSpec, GroupKind};

/// The codes of the rows of all inputs, and the cost of the sum.
#[derive(Debug)]
pub struct JoinIndex {
    /// The codes of the rows and of the columns of the product, by row of the two inputs that are multiplied.
    pub outer: [KeyCodes; 2],
    /// The codes of the inner dimension of the product, by row of the same inputs.
    pub inner: [KeyCodes; 2],
    /// Which elements of the product are needed, `None` for all.
    pub sampled: Option<SampledProduct>,
    /// Whether dot products of sampled elements take fewer steps than whole rows of the product.
    pub prefers_dots: bool,
    /// The cost of the sum.
    pub cost: CostEstimate,
    occupancy: OnceLock<[Arc<Occupancy>; 2]>,
}

impl JoinIndex {
    /// Encodes the keys of all inputs. Returns `None` if a key has no code.
    ///
    /// # Errors
    /// If keys cannot be compared.
    pub fn try_new(spec: &ContractionSpec, sides: &[InputRows]) -> Result<Option<Self>> {
        match spec.kind {
            GroupKind::Pairs => Self::try_new_pairs(spec, sides),
            GroupKind::Sampled { by, outer } => Self::try_new_sampled(spec, sides, by, outer),
        }
    }

    fn try_new_pairs(spec: &ContractionSpec, sides: &[InputRows]) -> Result<Option<Self>> {
        let (Some(inner), Some(left), Some(right)) =
            (encode_join_keys(spec, [0, 1], sides)?, sides[0].encode_groups()?, sides[1].encode_groups()?)
        else {
            return Ok(None);
        };
        Ok(Some(Self::from_codes([left, right], intersect_codes(inner), None)))
    }

    fn try_new_sampled(
        spec: &ContractionSpec,
        sides: &[InputRows],
        by: usize,
        outer: Option<usize>,
    ) -> Result<Option<Self>> {
        let [a, b] = spec.kind.factor_sides();
        let (Some(inner), Some([mut p, mut of_a]), Some([mut q, mut of_b]), Some(groups)) = (
            encode_join_keys(spec, [a, b], sides)?,
            encode_join_keys(spec, [by, a], sides)?,
            encode_join_keys(spec, [by, b], sides)?,
            sides[by].encode_groups()?,
        ) else {
            return Ok(None);
        };
        let existence = match outer {
            None => PairExistence::Inner,
            Some(outer) if outer == b => PairExistence::Outer(0, of_a.used_codes()),
            Some(_) => PairExistence::Outer(1, of_b.used_codes()),
        };
        // An outer join keeps a row whose key is NULL and has no code.
        if outer == Some(a) {
            p = with_null_code(p);
            of_a.count = p.count;
        }
        if outer == Some(b) {
            q = with_null_code(q);
            of_b.count = q.count;
        }
        Ok(Some(Self::from_codes(
            [of_a, of_b],
            intersect_codes(inner),
            Some(SampledProduct { pairs: [p, q], groups, existence }),
        )))
    }

    fn from_codes(outer: [KeyCodes; 2], inner: [KeyCodes; 2], sampled: Option<SampledProduct>) -> Self {
        let sizes = [outer[0].count, inner[0].count, outer[1].count];
        let cost = CostEstimate { sizes, pairs: 0.0, density: 0.0 };
        let mut index = Self { outer, inner, sampled, prefers_dots: false, cost, occupancy: OnceLock::new() };
        let (left, right) = (index.left().count(), index.right().count());
        // The number of pairs of rows with a common inner code.
        let products: f64 = left.minor.iter().zip(&right.major).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
        let steps = index.sampled.as_ref().map(|sampled| sampled.dot_steps(&left.major, &right.minor) as f64);
        let all = sizes.iter().map(|size| *size as f64).product::<f64>();
        let density = steps.map_or_else(|| products / all, |_| left.density() * right.density());
        index.prefers_dots = steps.is_some_and(|steps| steps <= products);
        index.cost = CostEstimate { sizes, pairs: steps.map_or(products, |steps| steps.min(products)), density };
        index
    }

    /// Returns the left matrix: the entries of the left input by outer and inner code.
    pub fn left(&self) -> CooMatrix<'_> {
        CooMatrix { major: &self.outer[0], minor: &self.inner[0] }
    }

    /// Returns the right matrix: the entries of the right input by inner and outer code.
    pub fn right(&self) -> CooMatrix<'_> {
        CooMatrix { major: &self.inner[1], minor: &self.outer[1] }
    }

    /// Returns the occupancy of both matrices, computed once.
    pub fn occupancy(&self) -> &[Arc<Occupancy>; 2] {
        self.occupancy.get_or_init(|| [self.left(), self.right()].map(|matrix| Arc::new(Occupancy::from_coo(matrix))))
    }

    /// Returns the memory of the codes in bytes.
    pub fn memory_size(&self) -> usize {
        let of_sampled = self.sampled.iter().flat_map(|sampled| sampled.pairs.iter().chain([&sampled.groups]));
        let codes = self.outer.iter().chain(&self.inner).chain(of_sampled);
        codes.map(|codes| codes.codes.len() * size_of::<u32>()).sum()
    }
}

/// Gives rows without a code a common code.
fn with_null_code(mut codes: KeyCodes) -> KeyCodes {
    if !codes.codes.contains(&NO_CODE) {
        return codes;
    }
    let code = codes.count as u32;
    codes.codes.iter_mut().filter(|position| **position == NO_CODE).for_each(|position| *position = code);
    codes.count += 1;
    codes
}
