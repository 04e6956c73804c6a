//! The columns of a result, from the sums of the terms.

use arrow::array::{ArrayRef, AsArray, Float64Array, Int64Array};
use arrow::compute::kernels::numeric::{add, div};
use arrow::datatypes::Float64Type;
use datafusion_common::{Result, internal_err};
use std::sync::Arc;

/// An aggregate of groups, from the sums of terms by their numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// The sum of terms, each of which is NULL where the others are.
    Sum(Vec<usize>),
    /// How many values there are, as the sum of a term that counts them.
    Count(usize),
    /// A sum over a count.
    Average(Vec<usize>, usize),
}

impl Output {
    /// The column of an aggregate. The sum of a term is NULL if all of its products are.
    ///
    /// # Errors
    /// If there is no term of a number.
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
