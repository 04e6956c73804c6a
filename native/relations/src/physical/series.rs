//! The convergence of the cotangents at a fixed point.

use datafusion_common::Result;

use super::sums::Sums;

/// The terms of a series of cotangents, each of which is a linear function of the one before, as they come.
///
/// What is left out of the sum after a term is estimated as the rest of a geometric series whose ratio is that of the last terms.
#[derive(Debug)]
pub struct Series {
    tolerance: f64,
    /// How many terms may grow before the series is taken for one that does not converge.
    patience: usize,
    /// The largest cotangent of each term.
    largest: Vec<f64>,
}

/// The reason why a series has no sum.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Diverges {
    /// A term is NaN or infinite.
    NotFinite {
        /// The number of the term.
        term: usize,
    },
    /// A term is as large as one long before.
    Grows {
        /// The number of the term.
        term: usize,
        /// By how much it is as large as that of half the number.
        times: f64,
    },
}

/// The number of terms over which the ratio is computed.
const SPAN: usize = 8;
/// The number of terms after which they must decrease, at the earliest.
const FEWEST: usize = 64;
/// Rounding errors of a term, as parts of the sum.
const ROUNDING: f64 = 16.0 * f64::EPSILON;

impl Series {
    /// Creates an empty series, for a fixed point after so many iterations. As many terms may grow: cotangents that
    /// pass along a chain of rows may grow until they leave it.
    pub fn new(tolerance: f64, iterations: usize) -> Self {
        Self { tolerance, patience: FEWEST.max(2 * iterations).next_power_of_two(), largest: vec![] }
    }

    /// Returns how many terms there have been.
    pub fn count(&self) -> usize {
        self.largest.len()
    }

    /// Records a term, which `sum` includes. Returns whether the series has converged.
    ///
    /// # Errors
    /// If they do not become smaller.
    pub fn ends(&mut self, term: &Sums, sum: &Sums) -> Result<bool, Diverges> {
        let (term, sum) = (term.largest(), sum.largest());
        let number = self.count();
        let largest = term.iter().copied().fold(0.0, f64::max);
        if !term.iter().all(|size| size.is_finite()) {
            return Err(Diverges::NotFinite { term: number });
        }
        self.largest.push(largest);
        let part = term.iter().zip(sum).filter(|(size, _)| **size > 0.0).map(|(size, sum)| size / sum);
        let part = part.fold(0.0, f64::max);
        if part <= ROUNDING {
            return Ok(true);
        }
        let span = number.min(SPAN);
        let ratio = (largest / self.largest[number - span]).powf(1.0 / span.max(1) as f64);
        if span > 0 && ratio < 1.0 && part * (ratio / (1.0 - ratio)).max(1.0) <= self.tolerance {
            return Ok(true);
        }
        if number >= self.patience && number.is_power_of_two() {
            let times = largest / self.largest[number / 2];
            if times >= 1.0 - 1e-9 {
                return Err(Diverges::Grows { term: number, times });
            }
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Float64Array, RecordBatch, UInt64Array};
    use arrow::datatypes::{DataType, Field, Schema};
    use datafusion_common::Result;
    use std::sync::Arc;

    /// Returns a cotangent of one row.
    fn sums(value: f64) -> Result<Sums> {
        let fields = vec![Field::new("row", DataType::UInt64, false), Field::new("c", DataType::Float64, true)];
        let columns = vec![Arc::new(UInt64Array::from(vec![0])) as _, Arc::new(Float64Array::from(vec![value])) as _];
        let mut sums = Sums::new(1);
        sums.add(&RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?, 0, 0)?;
        Ok(sums)
    }

    /// Returns the sum of as many terms as are needed, and how many these are.
    fn sum_series(
        tolerance: f64,
        iterations: usize,
        term: impl Fn(usize) -> f64,
    ) -> Result<std::result::Result<(f64, usize), Diverges>> {
        let (mut series, mut sum) = (Series::new(tolerance, iterations), 0.0);
        for number in 0..1_000_000 {
            sum += term(number);
            match series.ends(&sums(term(number))?, &sums(sum)?) {
                Ok(true) => return Ok(Ok((sum, series.count()))),
                Ok(false) => {}
                Err(diverges) => return Ok(Err(diverges)),
            }
        }
        unreachable!("a series ends")
    }

    #[test]
    fn what_is_left_out_is_within_the_tolerance() -> Result<()> {
        for ratio in [0.0, 1e-9, 0.1, 0.5, 0.9, 0.99, 0.999, -0.9] {
            for tolerance in [1e-3, 1e-6, 1e-9] {
                let (sum, terms) =
                    sum_series(tolerance, 10, |number| f64::powi(ratio, number as i32))?.expect("it converges");
                let off = (sum * (1.0 - ratio) - 1.0).abs();
                assert!(off <= 2.0 * tolerance, "{ratio} {tolerance}: {off} after {terms}");
                assert!(terms < 2 || off > tolerance * 1e-4 || ratio < 0.2, "{ratio} {tolerance}: {off} after {terms}");
            }
        }
        Ok(())
    }

    #[test]
    fn terms_that_do_not_fall() -> Result<()> {
        for ratio in [1.0, -1.0, 1.001, 2.0] {
            let found = sum_series(1e-9, 10, |number| f64::powi(ratio, number as i32))?;
            assert!(matches!(found, Err(Diverges::Grows { term: 64, times }) if times >= 1.0), "{ratio}: {found:?}");
        }
        assert_eq!(sum_series(1e-9, 10, |_| f64::NAN)?, Err(Diverges::NotFinite { term: 0 }));
        assert_eq!(
            sum_series(1e-9, 10, |number| if number == 3 { f64::INFINITY } else { 1.0 })?,
            Err(Diverges::NotFinite { term: 3 })
        );
        // As cotangents that grow along a chain of rows until they leave it.
        let chain = |number: usize| if number < 200 { 1.01_f64.powi(number as i32) } else { 0.0 };
        assert!(matches!(sum_series(1e-9, 200, chain)?, Ok((_, 201))));
        // Rounding errors need not fall.
        let rounding = |number: usize| f64::max(0.5_f64.powi(number as i32), 1e-17);
        assert!(sum_series(1e-15, 10, rounding)?.is_ok());
        Ok(())
    }
}
