//! Aggregates of a group, computed from the sums of its terms.

use arrow::array::{ArrayRef, AsArray, Float64Array, Int64Array};
use arrow::compute::kernels::numeric::{add, div};
use arrow::datatypes::Float64Type;
use datafusion_common::{Result, internal_err};
use std::sync::Arc;

/// An aggregate, with the indexes of the terms that it is computed from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// The sum of terms that are NULL in the same rows.
    Sum(Vec<usize>),
    /// The number of values: the sum of a term with [`Term::counts`](crate::spec::Term::counts).
    Count(usize),
    /// The sum of terms divided by the sum of a counting term.
    Average(Vec<usize>, usize),
}

impl Output {
    /// Returns the column of the aggregate. The sum of a term is NULL if all of its products are NULL.
    ///
    /// # Errors
    /// If it has no term.
    pub fn evaluate(&self, sums: &[Float64Array]) -> Result<ArrayRef> {
        match self {
            Self::Sum(terms) => add_terms(terms, sums),
            Self::Count(term) => {
                let counts = sums[*term].iter().map(|count| count.unwrap_or(0.0) as i64);
                Ok(Arc::new(counts.collect::<Int64Array>()))
            }
            Self::Average(terms, count) => {
                Ok(div(&add_terms(terms, sums)?.as_primitive::<Float64Type>(), &sums[*count])?)
            }
        }
    }
}

fn add_terms(terms: &[usize], sums: &[Float64Array]) -> Result<ArrayRef> {
    let [first, others @ ..] = terms else { return internal_err!("a sum of no terms") };
    let mut total: ArrayRef = Arc::new(sums[*first].clone());
    for term in others {
        total = add(&total.as_primitive::<Float64Type>(), &sums[*term])?;
    }
    Ok(total)
}
