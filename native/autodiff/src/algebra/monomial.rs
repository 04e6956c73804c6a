//! Products, quotients and powers as monomials: a number times nodes with exponents.

use std::collections::BTreeMap;

use crate::graph::NodeId;

/// `coefficient * base^exponent * ...`
#[derive(Debug, Clone, PartialEq)]
pub struct Monomial {
    /// The coefficient.
    pub coefficient: f64,
    /// The exponents of the nodes, none of them 0.
    pub factors: BTreeMap<NodeId, f64>,
}

impl Monomial {
    /// Creates a constant.
    pub fn number(coefficient: f64) -> Self {
        Self { coefficient, factors: BTreeMap::new() }
    }

    /// Creates a power.
    pub fn power(base: NodeId, exponent: f64) -> Self {
        Self { coefficient: 1.0, factors: BTreeMap::from([(base, exponent)]) }
    }

    /// Multiplies by the `exponent`-th power of another monomial.
    pub fn times(&self, other: &Self, exponent: f64) -> Self {
        let mut product = self.clone();
        if exponent == -1.0 {
            // A number divided by itself is 1 to the last bit.
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

    /// Divides by another monomial.
    pub fn divide(&self, other: &Self) -> Self {
        self.times(other, -1.0)
    }

    /// Returns the factors that both have, each with the exponent closer to 0, or for a common denominator the lower exponent.
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

    /// Returns whether this product contains all of the other, so that factoring it out divides by nothing new.
    pub fn contains(&self, other: &Self) -> bool {
        other.factors.iter().all(|(base, part)| {
            let exponent = self.factors.get(base).copied().unwrap_or(0.0);
            exponent * part > 0.0 && exponent.abs() >= part.abs()
        })
    }

    /// Returns the number of factors, with powers written out.
    pub fn degree(&self) -> f64 {
        self.factors.values().map(|exponent| exponent.abs()).sum()
    }

    /// Returns the only factor, if there is one and it is no power.
    pub fn as_single(&self) -> Option<NodeId> {
        match self.factors.iter().next() {
            Some((base, &1.0)) if self.factors.len() == 1 => Some(*base),
            _ => None,
        }
    }

    /// Returns whether this is the number 1.
    pub fn is_one(&self) -> bool {
        self.coefficient == 1.0 && self.factors.is_empty()
    }
}

/// Returns whether exponents that were added and subtracted are equal up to rounding. Infinity is close only to itself.
pub fn is_close(a: f64, b: f64) -> bool {
    a == b || (a - b).abs() <= 8.0 * f64::EPSILON * a.abs().max(b.abs()).clamp(1.0, f64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::NodeId;
    use crate::graph::{Graph, import};
    use crate::vocabulary::testing::columns;
    use datafusion_common::Result;
    use datafusion_expr::col;

    fn nodes() -> Result<[NodeId; 2]> {
        let schema = columns()?;
        let mut graph = Graph::new(&schema);
        Ok([import(&mut graph, &col("x"))?, import(&mut graph, &col("y"))?])
    }

    #[test]
    fn what_divides_itself_is_one() -> Result<()> {
        let [x, y] = nodes()?;
        let product = Monomial::number(0.1).times(&Monomial::power(x, 1.5), 1.0).times(&Monomial::power(y, -2.0), 1.0);
        assert!(product.divide(&product).is_one());
        assert_eq!(
            product.times(&product, 1.0),
            Monomial { coefficient: 0.1 * 0.1, factors: [(x, 3.0), (y, -4.0)].into() }
        );
        assert_eq!(product.degree(), 3.5);
        Ok(())
    }

    #[test]
    fn common_factors_are_those_of_both() -> Result<()> {
        let [x, y] = nodes()?;
        let p = Monomial { coefficient: 2.0, factors: [(x, 3.0), (y, -1.0)].into() };
        let q = Monomial { coefficient: -2.0, factors: [(x, 1.0), (y, -2.0)].into() };
        assert_eq!(p.common(&q, false), Monomial { coefficient: 2.0, factors: [(x, 1.0), (y, -1.0)].into() });
        assert_eq!(p.common(&q, true), Monomial { coefficient: 2.0, factors: [(x, 1.0), (y, -2.0)].into() });
        assert!(p.contains(&Monomial::power(x, 3.0)) && p.contains(&Monomial::power(y, -1.0)));
        assert!(!p.contains(&Monomial::power(x, 4.0)) && !p.contains(&Monomial::power(y, 1.0)));
        Ok(())
    }

    #[test]
    fn a_single_factor_is_no_power() -> Result<()> {
        let [x, y] = nodes()?;
        assert_eq!(Monomial { coefficient: -3.0, factors: [(x, 1.0)].into() }.as_single(), Some(x));
        assert_eq!(Monomial::power(x, 2.0).as_single(), None);
        assert_eq!(Monomial::power(x, 1.0).times(&Monomial::power(y, 1.0), 1.0).as_single(), None);
        Ok(())
    }

    #[test]
    fn close_exponents_differ_by_rounding() {
        assert!(is_close(0.1 + 0.2, 0.3) && is_close(f64::INFINITY, f64::INFINITY));
        assert!(!is_close(0.3, 0.3 + 1e-14) && !is_close(f64::INFINITY, f64::MAX));
    }
}
