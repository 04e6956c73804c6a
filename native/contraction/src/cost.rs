//! The estimated cost of a sum, by which its kernel is chosen.

use crate::option::Contractions;

/// A kernel that computes sums of products.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kernel {
    /// Products of dense matrices.
    Dense,
    /// Products of sparse matrices.
    Sparse,
}

/// The time of a multiplication of the dense kernel. All three constants are measured on one core.
const NANOS_PER_MULTIPLICATION: f64 = 0.1;
/// The time to fill or read an element of a dense matrix.
const NANOS_PER_ELEMENT: f64 = 0.5;
/// The time of a pair of entries of the sparse kernel.
const NANOS_PER_PAIR: f64 = 1.5;

/// What the cost of a sum depends on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CostEstimate {
    /// The rows, inner size and columns of the product.
    pub sizes: [usize; 3],
    /// The pairs of entries that the sparse kernel multiplies.
    pub pairs: f64,
    /// The fraction of pairs that have rows, from 0 to 1.
    pub density: f64,
}

impl CostEstimate {
    /// Picks the cheapest kernel, unless the mode prescribes one.
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
