//! Powers with a number as exponent, in the form that is computed fastest.
//!
//! `power` takes as long as sixteen products. So whole powers are products, half powers are products with a square root, and a
//! power that the query has stands for the one whose exponent is 1 less. Third powers stay as they are: `cbrt` takes longer
//! than `power`.

use datafusion_common::Result;
use datafusion_expr::{Expr, Operator};
use std::ops::RangeInclusive;

use super::monomial::{Monomial, is_close};
use super::monomials::Algebra;
use crate::graph::NodeId;
use crate::table::Algebraic;
use crate::vocabulary::functions;

/// Powers up to this one are products: six at most, whose rounding errors are small in single precision, too.
const LARGEST_PRODUCT: f64 = 16.0;
/// The exponents `p` for which `u^p / u` is exact to rounding wherever the derivative of `u^p` is a number: above, `u^p` is no normal
/// number for the least `u`, and below, the quotient is too large, in single precision, too.
const LOWERED: RangeInclusive<f64> = 0.15..=0.95;

impl Algebra<'_> {
    /// `base^exponent`; a negative power is a quotient, so that 0 is never raised to it, which DataFusion refuses.
    pub fn power(&mut self, base: NodeId, exponent: f64) -> Result<NodeId> {
        if exponent < 0.0 { self.product_of(&Monomial::of(base, exponent)) } else { self.factor(base, exponent) }
    }

    /// `base^exponent`, which is not negative.
    pub fn factor(&mut self, base: NodeId, exponent: f64) -> Result<NodeId> {
        let (whole, rest) = (exponent.trunc(), exponent.fract());
        if exponent <= LARGEST_PRODUCT && rest == 0.0 {
            return self.whole_power(base, whole as u32);
        }
        if exponent <= LARGEST_PRODUCT && rest == 0.5 {
            let root = self.call(functions::function("sqrt")?, &[base])?;
            return self.times_whole_power(base, whole as u32, root);
        }
        let exponent = self.number(exponent)?;
        self.call(functions::function("power")?, &[base, exponent])
    }

    /// `base^-exponent` as what multiplies a product and what divides it.
    pub fn reciprocal(&mut self, base: NodeId, exponent: f64) -> Result<[Option<NodeId>; 2]> {
        let (whole, rest) = (exponent.trunc(), exponent.fract());
        let half = rest == 0.5 && exponent <= LARGEST_PRODUCT;
        if !half && whole <= LARGEST_PRODUCT {
            let powers = self.primal_powers();
            let lowered = |(of, known, _): &&(NodeId, f64, NodeId)| {
                *of == base && LOWERED.contains(known) && is_close(rest, 1.0 - known)
            };
            if let Some((_, _, power)) = powers.iter().find(lowered) {
                let divisor = if whole == 0.0 { None } else { Some(self.whole_power(base, whole as u32)?) };
                return Ok([Some(self.lowered(base, *power)?), divisor]);
            }
        }
        Ok([None, Some(self.factor(base, exponent)?)])
    }

    /// `u^(p - 1)` by a power `u^p` of the query, which is computed once for both: the quotient of `u^p` and `u`, or `1 / u^p`,
    /// where the quotient is no number because `u` is 0 or infinite.
    fn lowered(&mut self, base: NodeId, power: NodeId) -> Result<NodeId> {
        let quotient = self.binary(power, Operator::Divide, base)?;
        let is_none = self.call(functions::function("isnan")?, &[quotient])?;
        let one = self.number(1.0)?;
        let reciprocal = self.binary(one, Operator::Divide, power)?;
        self.case(&[(is_none, reciprocal)], Some(quotient))
    }

    /// The base and the exponent of a power that is written as a quotient, which derivatives of higher order read.
    pub fn as_lowered(&self, id: NodeId) -> Option<(NodeId, f64)> {
        let node = self.node(id);
        let (Expr::Case(_), &[condition, reciprocal, quotient]) = (&node.shape, node.children.as_slice()) else {
            return None;
        };
        let (power, divisor) = self.as_binary(quotient, Operator::Divide)?;
        let (base, exponent) = self.as_power(power)?;
        let (one, reciprocal_of) = self.as_binary(reciprocal, Operator::Divide)?;
        let asks = self.node(condition);
        let asks_for_nan = matches!(&asks.shape, Expr::ScalarFunction(call) if call.func.name() == "isnan");
        let is_lowered = asks_for_nan
            && asks.children == [quotient]
            && divisor == base
            && reciprocal_of == power
            && self.as_number(one) == Some(1.0)
            && LOWERED.contains(&exponent);
        is_lowered.then_some((base, exponent - 1.0))
    }

    /// The base and the exponent of a call of `power`, if the exponent is a number.
    pub fn as_power(&self, id: NodeId) -> Option<(NodeId, f64)> {
        let node = self.node(id);
        let is_power = node.line().is_some_and(|line| line.algebraic == Some(Algebraic::Power));
        if is_power { Some((node.children[0], self.as_number(node.children[1])?)) } else { None }
    }

    /// `base^exponent * other`
    fn times_whole_power(&mut self, base: NodeId, exponent: u32, other: NodeId) -> Result<NodeId> {
        if exponent == 0 {
            return Ok(other);
        }
        let whole = self.whole_power(base, exponent)?;
        self.binary(whole, Operator::Multiply, other)
    }

    fn whole_power(&mut self, base: NodeId, exponent: u32) -> Result<NodeId> {
        match exponent {
            0 => self.number(1.0),
            1 => Ok(base),
            _ if exponent.is_multiple_of(2) => {
                let root = self.whole_power(base, exponent / 2)?;
                self.binary(root, Operator::Multiply, root)
            }
            _ => {
                let rest = self.whole_power(base, exponent - 1)?;
                self.binary(rest, Operator::Multiply, base)
            }
        }
    }
}
