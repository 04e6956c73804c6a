//! Products, quotients and powers as monomials: a number times nodes with exponents.

use std::collections::BTreeMap;

use crate::graph::NodeId;

/// `coefficient * base^exponent * ...`
#[derive(Debug, Clone, PartialEq)]
pub struct Monomial {
    /// The number.
    pub coefficient: f64,
    /// The exponents of the nodes, none of them 0.
    pub factors: BTreeMap<NodeId, f64>,
}

impl Monomial {
    /// A product of nothing but a number.
    pub fn number(coefficient: f64) -> Self {
        Self { coefficient, factors: BTreeMap::new() }
    }

    /// A power.
    pub fn of(base: NodeId, exponent: f64) -> Self {
        Self { coefficient: 1.0, factors: BTreeMap::from([(base, exponent)]) }
    }

    /// This times the `exponent`-th power of the other.
    pub fn times(&self, other: &Self, exponent: f64) -> Self {
        let mut product = self.clone();
        if exponent == -1.0 {
            // What divides itself is 1 to the last bit.
            product.coefficient /= other.coefficient;
        } else {
            product.coefficient *= other.coefficient.powf(exponent);
        }
        for (base, e) in &other.factors {
            let sum = product.factors.entry(*base).or_default();
            *sum += e * exponent;
            if is_close(*sum, 0.0) {
                product.factors.remove(base);
            }
        }
        product
    }

    /// This divided by the other.
    pub fn over(&self, other: &Self) -> Self {
        self.times(other, -1.0)
    }

    /// The factors that both have, each with the exponent closer to 0; or the least one, which makes a common denominator.
    pub fn common(&self, other: &Self, denominator: bool) -> Self {
        let exponent = |of: &Self, base| of.factors.get(base).copied().unwrap_or(0.0);
        let mut common =
            Self::number(if self.coefficient.abs() == other.coefficient.abs() { self.coefficient.abs() } else { 1.0 });
        for base in self.factors.keys().chain(other.factors.keys()) {
            let (a, b) = (exponent(self, base), exponent(other, base));
            let shared = if a > 0.0 && b > 0.0 || denominator {
                a.min(b)
            } else if a < 0.0 && b < 0.0 {
                a.max(b)
            } else {
                0.0
            };
            if shared != 0.0 {
                common.factors.insert(*base, shared);
            }
        }
        common
    }

    /// Whether this product contains all of the other, so that taking it out divides by nothing new.
    pub fn contains(&self, other: &Self) -> bool {
        other.factors.iter().all(|(base, part)| {
            let exponent = self.factors.get(base).copied().unwrap_or(0.0);
            exponent * part > 0.0 && exponent.abs() >= part.abs()
        })
    }

    /// How many factors there are, powers written out.
    pub fn degree(&self) -> f64 {
        self.factors.values().map(|exponent| exponent.abs()).sum()
    }

    /// The only factor, if there is just one and it is no power.
    pub fn single(&self) -> Option<NodeId> {
        match self.factors.iter().next() {
            Some((base, &1.0)) if self.factors.len() == 1 => Some(*base),
            _ => None,
        }
    }

    /// Whether this is the number 1.
    pub fn is_one(&self) -> bool {
        self.coefficient == 1.0 && self.factors.is_empty()
    }
}

/// Whether exponents that were added and subtracted are the same but for rounding. What is infinite is close to itself alone.
pub fn is_close(a: f64, b: f64) -> bool {
    a == b || (a - b).abs() <= 8.0 * f64::EPSILON * a.abs().max(b.abs()).clamp(1.0, f64::MAX)
}
