//! Products, quotients and powers.

use datafusion_common::Result;
use datafusion_expr::Operator;

use super::monomial::{Monomial, is_close};
use super::monomials::{Algebra, Depth};
use crate::graph::NodeId;

impl Algebra<'_> {
    /// `a * b`.
    pub fn multiply(&mut self, a: NodeId, b: NodeId) -> Result<NodeId> {
        match (self.as_number(a), self.as_number(b)) {
            (Some(a), Some(b)) => return self.number(a * b),
            (Some(0.0), _) | (_, Some(0.0)) => return self.number(0.0),
            (Some(1.0), _) => return self.cast_to_working_type(b),
            (_, Some(1.0)) => return self.cast_to_working_type(a),
            // Numbers stand in front, where they meet.
            (None, Some(_)) => return self.multiply(b, a),
            _ => {}
        }
        let (negative, [a, b]) = self.without_signs([a, b])?;
        let plain = match self.as_binary(b, Operator::Divide) {
            Some((p, u)) if !self.is_primal(b) => {
                let by_number = match (self.as_number(a), self.as_number(p)) {
                    // 1e-200 * (1e-200 / u) is no 0.
                    (Some(a), Some(p)) => (a * p).is_normal(),
                    (a, p) => a.is_some() || p.is_some(),
                };
                if by_number {
                    let numerator = self.multiply(a, p)?;
                    self.binary(numerator, Operator::Divide, u)?
                } else if self.as_binary(p, Operator::Divide).is_some_and(|(_, divisor)| divisor == u) {
                    // By the divisor of x / u: the derivative by x has a / u too.
                    let quotient = self.binary(a, Operator::Divide, u)?;
                    self.binary(quotient, Operator::Multiply, p)?
                } else {
                    // Not (a / u) * p: a / u may be infinite where p / u is not.
                    self.binary(a, Operator::Multiply, b)?
                }
            }
            _ if self.as_number(a) == Some(1.0) => self.cast_to_working_type(b)?,
            _ => self.binary(a, Operator::Multiply, b)?,
        };
        let product = self.cheapest_product(plain)?;
        if negative { self.negate(product) } else { Ok(product) }
    }

    /// `a / b`.
    pub fn divide(&mut self, a: NodeId, b: NodeId) -> Result<NodeId> {
        match (self.as_number(a), self.as_number(b)) {
            (Some(0.0), _) => return self.number(0.0),
            (Some(a), Some(b)) => return self.number(a / b),
            (_, Some(1.0)) => return self.cast_to_working_type(a),
            _ => {}
        }
        let (negative, [a, b]) = self.without_signs([a, b])?;
        let plain = self.binary(a, Operator::Divide, b)?;
        let quotient = self.cheapest_product(plain)?;
        if negative { self.negate(quotient) } else { Ok(quotient) }
    }

    /// The product as it stands or made anew from its factors, whichever is cheaper.
    fn cheapest_product(&mut self, plain: NodeId) -> Result<NodeId> {
        let mut candidates = vec![plain];
        for depth in [Depth::Derivative, Depth::Full] {
            let monomial = self.monomial(plain, depth)?;
            candidates.push(self.product_of(&monomial)?);
            if depth == Depth::Full {
                for other in self.absorb_coefficient(&monomial)? {
                    candidates.push(self.product_of(&other)?);
                }
            }
        }
        Ok(self.cheapest(&candidates))
    }

    /// The node of a monomial: a product, or a quotient of two.
    pub fn product_of(&mut self, monomial: &Monomial) -> Result<NodeId> {
        let magnitude = monomial.coefficient.abs();
        let mut numerator = if magnitude == 1.0 { None } else { Some(self.number(magnitude)?) };
        let mut denominator = None;
        for (base, exponent) in &monomial.factors {
            let positive = *exponent > 0.0;
            let exponent = self.written_exponent(*base, exponent.abs())?;
            let powers =
                if positive { [Some(self.factor(*base, exponent)?), None] } else { self.reciprocal(*base, exponent)? };
            for (side, power) in [&mut numerator, &mut denominator].into_iter().zip(powers) {
                *side = match (*side, power) {
                    (Some(product), Some(power)) => Some(self.binary(product, Operator::Multiply, power)?),
                    (product, power) => product.or(power),
                };
            }
        }
        let numerator = match numerator {
            Some(numerator) => numerator,
            None => self.number(1.0)?,
        };
        let quotient = match denominator {
            None => self.cast_to_working_type(numerator)?,
            Some(denominator) => self.binary(numerator, Operator::Divide, denominator)?,
        };
        if monomial.coefficient < 0.0 { self.negate(quotient) } else { Ok(quotient) }
    }

    /// The exponent as the query writes it for this base, or a whole number, if it differs by rounding only.
    fn written_exponent(&mut self, base: NodeId, exponent: f64) -> Result<f64> {
        if is_close(exponent.round(), exponent) {
            return Ok(exponent.round());
        }
        let products = self.primal_products()?;
        let mut written = products.iter().filter_map(|(_, product)| product.factors.get(&base)).map(|e| e.abs());
        Ok(written.find(|other| is_close(*other, exponent)).unwrap_or(exponent))
    }

    /// The same product with one of the primal's in place of a number: with `w = 8.3 * t` in the query, `a / (8.3 * t^2)` is
    /// `a / (w * t)`.
    pub fn absorb_coefficient(&mut self, product: &Monomial) -> Result<Vec<Monomial>> {
        let mut found = vec![];
        if product.coefficient.abs() == 1.0 {
            return Ok(found);
        }
        for (node, factor) in self.primal_products()?.iter() {
            for exponent in [1.0, -1.0] {
                let coefficient = product.times(factor, -exponent).coefficient;
                let contained = product.contains(&Monomial::number(1.0).times(factor, exponent));
                if contained && is_close(coefficient.abs(), 1.0) {
                    let rest = Monomial { coefficient: coefficient.signum(), ..product.times(factor, -exponent) };
                    found.push(rest.times(&Monomial::of(*node, 1.0), exponent));
                }
            }
        }
        Ok(found)
    }
}
