//! Products, quotients and powers.

use datafusion_common::Result;
use datafusion_expr::Operator;

use super::monomial::{Monomial, is_close};
use super::monomials::{Algebra, Depth};
use super::powers::{LOWERED_EXPONENTS, MAX_PRODUCT_EXPONENT, factor, lower_power, whole_power};
use super::signs::{negate, split_signs};
use super::weight::pick_cheapest;
use crate::graph::NodeId;

/// Builds `a * b`.
pub fn multiply(algebra: &mut Algebra, a: NodeId, b: NodeId) -> Result<NodeId> {
    match (algebra.as_number(a), algebra.as_number(b)) {
        (Some(a), Some(b)) => return algebra.number(a * b),
        (Some(0.0), _) | (_, Some(0.0)) => return algebra.number(0.0),
        (Some(1.0), _) => return algebra.cast_to_working_type(b),
        (_, Some(1.0)) => return algebra.cast_to_working_type(a),
        // Constants come first, where they are merged.
        (None, Some(_)) => return multiply(algebra, b, a),
        _ => {}
    }
    let (negative, [a, b]) = split_signs(algebra, [a, b])?;
    let plain = match algebra.as_binary(b, Operator::Divide) {
        Some((p, u)) if !algebra.is_primal(b) => {
            let by_number = match (algebra.as_number(a), algebra.as_number(p)) {
                // 1e-200 * (1e-200 / u) is no 0.
                (Some(a), Some(p)) => (a * p).is_normal(),
                (a, p) => a.is_some() || p.is_some(),
            };
            if by_number {
                let numerator = multiply(algebra, a, p)?;
                algebra.binary(numerator, Operator::Divide, u)?
            } else if algebra.as_binary(p, Operator::Divide).is_some_and(|(_, divisor)| divisor == u) {
                // By the divisor of x / u: the derivative by x has a / u too.
                let quotient = algebra.binary(a, Operator::Divide, u)?;
                algebra.binary(quotient, Operator::Multiply, p)?
            } else {
                // Not (a / u) * p: a / u may be infinite where p / u is not.
                algebra.binary(a, Operator::Multiply, b)?
            }
        }
        _ if algebra.as_number(a) == Some(1.0) => algebra.cast_to_working_type(b)?,
        _ => algebra.binary(a, Operator::Multiply, b)?,
    };
    let product = cheapest_product(algebra, plain)?;
    if negative { negate(algebra, product) } else { Ok(product) }
}

/// Builds `a / b`.
pub fn divide(algebra: &mut Algebra, a: NodeId, b: NodeId) -> Result<NodeId> {
    match (algebra.as_number(a), algebra.as_number(b)) {
        (Some(0.0), _) => return algebra.number(0.0),
        (Some(a), Some(b)) => return algebra.number(a / b),
        (_, Some(1.0)) => return algebra.cast_to_working_type(a),
        _ => {}
    }
    let (negative, [a, b]) = split_signs(algebra, [a, b])?;
    let plain = algebra.binary(a, Operator::Divide, b)?;
    let quotient = cheapest_product(algebra, plain)?;
    if negative { negate(algebra, quotient) } else { Ok(quotient) }
}

/// Returns the product as it is or rebuilt from its factors, whichever is cheaper.
fn cheapest_product(algebra: &mut Algebra, plain: NodeId) -> Result<NodeId> {
    let mut candidates = vec![plain];
    for depth in [Depth::Derivative, Depth::Full] {
        let monomial = algebra.monomial(plain, depth)?;
        candidates.push(product_of(algebra, &monomial)?);
        if depth == Depth::Full {
            for other in absorb_coefficient(algebra, &monomial)? {
                candidates.push(product_of(algebra, &other)?);
            }
        }
    }
    Ok(pick_cheapest(algebra, &candidates))
}

/// Builds the node of a monomial: a product, or a quotient of two.
pub fn product_of(algebra: &mut Algebra, monomial: &Monomial) -> Result<NodeId> {
    let magnitude = monomial.coefficient.abs();
    let mut numerator = if magnitude == 1.0 { None } else { Some(algebra.number(magnitude)?) };
    let mut denominator = None;
    for (base, exponent) in &monomial.factors {
        let positive = *exponent > 0.0;
        let exponent = written_exponent(algebra, *base, exponent.abs())?;
        let powers = if positive {
            [Some(factor(algebra, *base, exponent)?), None]
        } else {
            reciprocal(algebra, *base, exponent)?
        };
        for (side, power) in [&mut numerator, &mut denominator].into_iter().zip(powers) {
            *side = match (*side, power) {
                (Some(product), Some(power)) => Some(algebra.binary(product, Operator::Multiply, power)?),
                (product, power) => product.or(power),
            };
        }
    }
    let numerator = match numerator {
        Some(numerator) => numerator,
        None => algebra.number(1.0)?,
    };
    let quotient = match denominator {
        None => algebra.cast_to_working_type(numerator)?,
        Some(denominator) => algebra.binary(numerator, Operator::Divide, denominator)?,
    };
    if monomial.coefficient < 0.0 { negate(algebra, quotient) } else { Ok(quotient) }
}

/// Returns the exponent that the query has for this base, or an integer, if it differs only by rounding.
fn written_exponent(algebra: &mut Algebra, base: NodeId, exponent: f64) -> Result<f64> {
    if is_close(exponent.round(), exponent) {
        return Ok(exponent.round());
    }
    let products = algebra.primal_products()?;
    let mut written = products.iter().filter_map(|(_, product)| product.factors.get(&base)).map(|e| e.abs());
    Ok(written.find(|other| is_close(*other, exponent)).unwrap_or(exponent))
}

/// Rewrites a product with one of the primal's products in place of a number: with `w = 8.3 * t` in the query, `a / (8.3 * t^2)` becomes `a
/// / (w * t)`.
pub fn absorb_coefficient(algebra: &mut Algebra, product: &Monomial) -> Result<Vec<Monomial>> {
    let mut found = vec![];
    if product.coefficient.abs() == 1.0 {
        return Ok(found);
    }
    for (node, factor) in algebra.primal_products()?.iter() {
        for exponent in [1.0, -1.0] {
            let coefficient = product.times(factor, -exponent).coefficient;
            let contained = product.contains(&Monomial::number(1.0).times(factor, exponent));
            if contained && is_close(coefficient.abs(), 1.0) {
                let rest = Monomial { coefficient: coefficient.signum(), ..product.times(factor, -exponent) };
                found.push(rest.times(&Monomial::power(*node, 1.0), exponent));
            }
        }
    }
    Ok(found)
}

/// Builds `base^exponent`. A negative power becomes a quotient, so 0 is never raised to it, which DataFusion refuses.
pub fn power(algebra: &mut Algebra, base: NodeId, exponent: f64) -> Result<NodeId> {
    if exponent < 0.0 { product_of(algebra, &Monomial::power(base, exponent)) } else { factor(algebra, base, exponent) }
}

/// Builds `base^-exponent` as the factors that multiply a product and that divide it.
pub fn reciprocal(algebra: &mut Algebra, base: NodeId, exponent: f64) -> Result<[Option<NodeId>; 2]> {
    let (whole, rest) = (exponent.trunc(), exponent.fract());
    let half = rest == 0.5 && exponent <= MAX_PRODUCT_EXPONENT;
    if !half && whole <= MAX_PRODUCT_EXPONENT {
        let powers = algebra.primal_powers();
        let is_lowered = |(of, known, _): &&(NodeId, f64, NodeId)| {
            *of == base && LOWERED_EXPONENTS.contains(known) && is_close(rest, 1.0 - known)
        };
        if let Some((_, _, power)) = powers.iter().find(is_lowered) {
            let divisor = if whole == 0.0 { None } else { Some(whole_power(algebra, base, whole as u32)?) };
            return Ok([Some(lower_power(algebra, base, *power)?), divisor]);
        }
    }
    Ok([None, Some(factor(algebra, base, exponent)?)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algebra::testing::show;
    use crate::graph::import;
    use crate::vocabulary::testing::columns;
    use datafusion_expr::col;

    #[test]
    fn products_take_the_form_that_costs_least() -> Result<()> {
        let schema = columns()?;
        let mut algebra = Algebra::new(&schema);
        let (x, y) = (import(&mut algebra, &col("x"))?, import(&mut algebra, &col("y"))?);
        algebra.end_primal();
        let (zero, one) = (algebra.number(0.0)?, algebra.number(1.0)?);
        let (xy, quotient) = (multiply(&mut algebra, x, y)?, divide(&mut algebra, x, y)?);
        let minus_x = negate(&mut algebra, x)?;
        for (a, b, product, divided) in [
            (x, one, "x", "x"),
            (zero, x, "0.0", "0.0"),
            (x, y, "x * y", "x / y"),
            (minus_x, y, "-(x * y)", "-(x / y)"),
            (xy, y, "x * y * y", "x"),
            (quotient, y, "x", "x / y / y"),
        ] {
            let (made, over) = (multiply(&mut algebra, a, b)?, divide(&mut algebra, a, b)?);
            assert_eq!((show(&algebra, made)?.as_str(), show(&algebra, over)?.as_str()), (product, divided));
        }
        Ok(())
    }

    #[test]
    fn powers_are_products_where_those_are_faster() -> Result<()> {
        let schema = columns()?;
        let mut algebra = Algebra::new(&schema);
        let x = import(&mut algebra, &col("x"))?;
        algebra.end_primal();
        for (exponent, expected) in [
            (0.0, "1.0"),
            (1.0, "x"),
            (3.0, "x * x * x"),
            (2.5, "x * x * sqrt(x)"),
            (-1.0, "1.0 / x"),
            (-2.0, "1.0 / (x * x)"),
            (0.3, "power(x, 0.3)"),
            (17.0, "power(x, 17.0)"),
        ] {
            let made = power(&mut algebra, x, exponent)?;
            assert_eq!(show(&algebra, made)?, expected);
        }
        Ok(())
    }
}
