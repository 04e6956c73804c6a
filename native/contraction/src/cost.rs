//! Which way a sum is computed, by what the rows that there are would take.

use crate::option::Contractions;

/// A way to compute sums of products.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kernel {
    /// By dense arrays.
    Dense,
    /// By sorted runs.
    Sparse,
}

/// A multiplication in dense arrays, in nanoseconds. All of these are measured, on one core.
const NANOS_PER_MULTIPLICATION: f64 = 0.1;
/// An element that is filled or read.
const NANOS_PER_ELEMENT: f64 = 0.5;
/// A pair of rows of runs.
const NANOS_PER_PAIR: f64 = 1.5;

/// What a sum takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CostEstimate {
    /// The rows, inner positions and columns of arrays.
    pub sizes: [usize; 3],
    /// The pairs of rows that are met by runs.
    pub pairs: f64,
    /// How much of the arrays has rows, from 0 to 1.
    pub density: f64,
}

impl CostEstimate {
    /// Whichever way takes least.
    pub fn pick_kernel(&self, mode: Contractions) -> Kernel {
        let is_dense = match mode {
            Contractions::Dense => true,
            Contractions::Sparse => false,
            Contractions::On | Contractions::Everywhere | Contractions::Off | Contractions::Fallback => {
                self.dense_cost() < self.pairs * NANOS_PER_PAIR
            }
        };
        if is_dense { Kernel::Dense } else { Kernel::Sparse }
    }

    fn dense_cost(&self) -> f64 {
        let [rows, inner, columns] = self.sizes.map(|size| size as f64);
        rows * inner * columns * NANOS_PER_MULTIPLICATION
            + (rows * inner + inner * columns + rows * columns) * NANOS_PER_ELEMENT
    }
}
