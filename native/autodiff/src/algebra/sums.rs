//! Sums and differences.

use datafusion_common::Result;
use datafusion_expr::{Expr, Operator};

use super::bounds::is_finite;
use super::monomial::Monomial;
use super::monomials::{Algebra, Depth};
use super::products::{multiply, product_of};
use super::signs::{negate, plain_sum};
use super::weight::{MAX_WEIGHED, cost, pick_cheapest};
use crate::graph::NodeId;

/// Sums of more terms are not expanded.
const MAX_CHAIN: usize = 16;

/// A term of a sum, with its sign in the coefficient.
#[derive(Clone)]
struct Term {
    monomial: Monomial,
    /// Its node without the sign.
    node: Option<NodeId>,
}

/// Builds `a + b`.
pub fn add(algebra: &mut Algebra, a: NodeId, b: NodeId) -> Result<NodeId> {
    match (algebra.as_number(a), algebra.as_number(b)) {
        (Some(a), Some(b)) => return algebra.number(a + b),
        (Some(0.0), _) => return Ok(b),
        (_, Some(0.0)) => return Ok(a),
        _ => {}
    }
    let (a, b) = (algebra.cast_to_working_type(a)?, algebra.cast_to_working_type(b)?);
    if let Some(merged) = merge_like_terms(algebra, a, b)? {
        return Ok(merged);
    }
    let mut candidates = vec![plain_sum(algebra, a, b)?];
    if cost(algebra, candidates[0]).is_some() {
        for depth in [Depth::Derivative, Depth::Full] {
            let (p, q) = (algebra.monomial(a, depth)?, algebra.monomial(b, depth)?);
            if let Some((common, factored)) = factor_out(algebra, &p, &q)? {
                // Infinity times a sum is a number more often than a sum of infinities.
                let position = if is_finite(algebra, common) { candidates.len() } else { 0 };
                candidates.insert(position, factored);
            }
            candidates.extend(add_over_denominator(algebra, &p, &q)?);
        }
    }
    Ok(pick_cheapest(algebra, &candidates))
}

/// Builds a sum. Many terms are added in halves: a chain would be as deep as it has terms, and DataFusion plans it in the square of their
/// number.
pub fn add_all(algebra: &mut Algebra, summands: &[NodeId]) -> Result<NodeId> {
    if summands.len() > MAX_CHAIN {
        let (first, second) = summands.split_at(summands.len() / 2);
        let (a, b) = (add_all(algebra, first)?, add_all(algebra, second)?);
        return add(algebra, a, b);
    }
    let Some((first, rest)) = summands.split_first() else { return algebra.number(0.0) };
    rest.iter().try_fold(*first, |sum, summand| add(algebra, sum, *summand))
}

/// Builds `a - b`.
pub fn subtract(algebra: &mut Algebra, a: NodeId, b: NodeId) -> Result<NodeId> {
    let b = negate(algebra, b)?;
    add(algebra, a, b)
}

/// Builds `a + b` if a term of `a` is a multiple of one of `b`, by merging them.
fn merge_like_terms(algebra: &mut Algebra, a: NodeId, b: NodeId) -> Result<Option<NodeId>> {
    let mut terms = terms_of(algebra, a, Depth::Derivative)?;
    let others = terms_of(algebra, b, Depth::Derivative)?;
    if terms.len() + others.len() > MAX_WEIGHED {
        return Ok(None);
    }
    let count = terms.len() + others.len();
    merge_terms(&mut terms, others);
    if terms.len() == count || !fits_chain(&terms) { Ok(None) } else { sum_of(algebra, &terms).map(Some) }
}

/// Returns the terms of a node. Sums of the primal are expanded only at full depth.
#[recursive::recursive]
fn terms_of(algebra: &mut Algebra, id: NodeId, depth: Depth) -> Result<Vec<Term>> {
    if let Expr::Negative(_) = algebra.node(id).shape {
        let positive = algebra.node(id).children[0];
        let mut terms = terms_of(algebra, positive, depth)?;
        terms.iter_mut().for_each(|term| term.monomial.coefficient *= -1.0);
        return Ok(terms);
    }
    let apart = algebra.data_type(id) == algebra.working_type() && (depth == Depth::Full || !algebra.is_primal(id));
    for (op, sign) in [(Operator::Plus, 1.0), (Operator::Minus, -1.0)] {
        if apart && let Some((a, b)) = algebra.as_binary(id, op) {
            let mut terms = terms_of(algebra, a, depth)?;
            let mut others = terms_of(algebra, b, depth)?;
            others.iter_mut().for_each(|term| term.monomial.coefficient *= sign);
            terms.append(&mut others);
            return Ok(terms);
        }
    }
    let monomial = algebra.monomial(id, Depth::Full)?.as_ref().clone();
    let node = if monomial.coefficient < 0.0 { None } else { Some(id) };
    Ok(vec![Term { monomial, node }])
}

/// Builds the sum of terms, a positive one first if there is one.
fn sum_of(algebra: &mut Algebra, terms: &[Term]) -> Result<NodeId> {
    let (positive, negative): (Vec<_>, Vec<_>) = terms.iter().partition(|term| term.monomial.coefficient >= 0.0);
    let mut sum = None;
    for term in positive.into_iter().chain(negative) {
        let unsigned = match term.node {
            Some(node) => node,
            None => {
                let coefficient = term.monomial.coefficient.abs();
                product_of(algebra, &Monomial { coefficient, ..term.monomial.clone() })?
            }
        };
        let signed = if term.monomial.coefficient < 0.0 { negate(algebra, unsigned)? } else { unsigned };
        sum = Some(match sum {
            None => signed,
            Some(sum) => plain_sum(algebra, sum, signed)?,
        });
    }
    match sum {
        Some(sum) => Ok(sum),
        None => algebra.number(0.0),
    }
}

/// Returns the common factors of `p` and `q`, and `p + q` divided by them.
fn factor_out(algebra: &mut Algebra, p: &Monomial, q: &Monomial) -> Result<Option<(NodeId, NodeId)>> {
    let common = p.common(q, false);
    if common.is_one() {
        return Ok(None);
    }
    let (p, q) = (product_of(algebra, &p.divide(&common))?, product_of(algebra, &q.divide(&common))?);
    let common = product_of(algebra, &common)?;
    let sum = add(algebra, p, q)?;
    Ok(Some((common, multiply(algebra, common, sum)?)))
}

/// Builds `p + q` over their common denominator, if the numerator shrinks to a single term: with `u = a + x`, `a / u - a * x / u^2` becomes
/// `a * a / u^2`.
fn add_over_denominator(algebra: &mut Algebra, p: &Monomial, q: &Monomial) -> Result<Option<NodeId>> {
    let common = p.common(q, true);
    let (p, q) = (p.divide(&common), q.divide(&common));
    if p.as_single().is_none() && q.as_single().is_none() {
        return Ok(None);
    }
    let mut terms = linear_terms(algebra, &p)?;
    let others = linear_terms(algebra, &q)?;
    if terms.len() + others.len() > MAX_WEIGHED || !fits_chain(&terms) || !fits_chain(&others) {
        return Ok(None);
    }
    merge_terms(&mut terms, others);
    match terms.as_slice() {
        [] => algebra.number(0.0).map(Some),
        [term] => {
            let product = common.times(&term.monomial, 1.0);
            if product.coefficient.is_normal() { product_of(algebra, &product).map(Some) } else { Ok(None) }
        }
        _ => Ok(None),
    }
}

/// Returns the terms of a multiple of a sum.
fn linear_terms(algebra: &mut Algebra, monomial: &Monomial) -> Result<Vec<Term>> {
    let Some(sum) = monomial.as_single() else {
        return Ok(vec![Term { monomial: monomial.clone(), node: None }]);
    };
    let mut terms = terms_of(algebra, sum, Depth::Full)?;
    for term in &mut terms {
        term.monomial.coefficient *= monomial.coefficient;
        term.node = None;
    }
    Ok(terms)
}

/// Returns whether no coefficient has become 0, infinite or inexact where others would have compensated for it: `1e-200 * (1e-200 *
/// exp(x))`.
fn fits_chain(terms: &[Term]) -> bool {
    terms.iter().all(|term| term.monomial.coefficient.is_normal())
}

/// Adds each of `others` to the term that it is a multiple of, or else appends it.
fn merge_terms(terms: &mut Vec<Term>, others: Vec<Term>) {
    for other in others {
        match terms.iter_mut().find(|term| term.monomial.factors == other.monomial.factors) {
            Some(like) => {
                like.monomial.coefficient += other.monomial.coefficient;
                like.node = None;
            }
            None => terms.push(other),
        }
    }
    terms.retain(|term| term.monomial.coefficient != 0.0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algebra::testing::show;
    use crate::graph::import;
    use crate::vocabulary::testing::columns;
    use datafusion_expr::col;

    #[test]
    fn sums_take_the_form_that_costs_least() -> Result<()> {
        let schema = columns()?;
        let mut algebra = Algebra::new(&schema);
        let (x, y) = (import(&mut algebra, &col("x"))?, import(&mut algebra, &col("y"))?);
        algebra.end_primal();
        let (zero, two) = (algebra.number(0.0)?, algebra.number(2.0)?);
        let (xy, twice) = (multiply(&mut algebra, x, y)?, multiply(&mut algebra, two, x)?);
        let minus_x = negate(&mut algebra, x)?;
        for (a, b, expected) in [
            (x, zero, "x"),
            (two, two, "4.0"),
            (x, minus_x, "0.0"),
            (x, twice, "3.0 * x"),
            (xy, xy, "2.0 * x * y"),
            (xy, twice, "x * (y + 2.0)"),
        ] {
            let sum = add(&mut algebra, a, b)?;
            assert_eq!(show(&algebra, sum)?, expected);
        }
        let none = subtract(&mut algebra, xy, xy)?;
        assert!(algebra.is_zero(none));
        Ok(())
    }

    #[test]
    fn many_summands_make_no_chain() -> Result<()> {
        let schema = columns()?;
        let mut algebra = Algebra::new(&schema);
        let x = import(&mut algebra, &col("x"))?;
        algebra.end_primal();
        assert!(add_all(&mut algebra, &[]).map(|sum| algebra.is_zero(sum))?);
        let sum = add_all(&mut algebra, &vec![x; 4 * MAX_CHAIN])?;
        assert_eq!(show(&algebra, sum)?, "64.0 * x");
        Ok(())
    }
}
