//! Sums and differences.

use datafusion_common::Result;
use datafusion_expr::{Expr, Operator};

use super::monomial::Monomial;
use super::monomials::{Algebra, Depth};
use super::weight::MOST_WEIGHED;
use crate::graph::NodeId;

/// More summands than these are no chain.
const LONGEST_CHAIN: usize = 16;

/// A summand of a sum, with its sign in the coefficient.
#[derive(Clone)]
struct Term {
    monomial: Monomial,
    /// The node it stands for, but for its sign.
    node: Option<NodeId>,
}

impl Algebra<'_> {
    /// `a + b`.
    pub fn add(&mut self, a: NodeId, b: NodeId) -> Result<NodeId> {
        match (self.as_number(a), self.as_number(b)) {
            (Some(a), Some(b)) => return self.number(a + b),
            (Some(0.0), _) => return Ok(b),
            (_, Some(0.0)) => return Ok(a),
            _ => {}
        }
        let (a, b) = (self.cast_to_working_type(a)?, self.cast_to_working_type(b)?);
        if let Some(merged) = self.merge_like_terms(a, b)? {
            return Ok(merged);
        }
        let mut candidates = vec![self.plain_sum(a, b)?];
        if self.cost(candidates[0]).is_some() {
            for depth in [Depth::Derivative, Depth::Full] {
                let (p, q) = (self.monomial(a, depth)?, self.monomial(b, depth)?);
                if let Some((common, factored)) = self.factored(&p, &q)? {
                    // Infinity times a sum is a number more often than a sum of infinities.
                    let position = if self.is_finite(common) { candidates.len() } else { 0 };
                    candidates.insert(position, factored);
                }
                candidates.extend(self.over_denominator(&p, &q)?);
            }
        }
        Ok(self.cheapest(&candidates))
    }

    /// The sum of summands. Many are added up in halves: the sum of a chain would be as deep as there are summands, and DataFusion
    /// plans it in the square of their number.
    pub fn add_all(&mut self, summands: &[NodeId]) -> Result<NodeId> {
        if summands.len() > LONGEST_CHAIN {
            let (first, second) = summands.split_at(summands.len() / 2);
            let (a, b) = (self.add_all(first)?, self.add_all(second)?);
            return self.add(a, b);
        }
        let Some((first, rest)) = summands.split_first() else { return self.number(0.0) };
        rest.iter().try_fold(*first, |sum, summand| self.add(sum, *summand))
    }

    /// `a - b`.
    pub fn subtract(&mut self, a: NodeId, b: NodeId) -> Result<NodeId> {
        let b = self.negate(b)?;
        self.add(a, b)
    }

    /// `a + b` if a summand of `a` is a multiple of one of `b`: those are added up.
    fn merge_like_terms(&mut self, a: NodeId, b: NodeId) -> Result<Option<NodeId>> {
        let mut terms = self.terms(a, Depth::Derivative)?;
        let others = self.terms(b, Depth::Derivative)?;
        if terms.len() + others.len() > MOST_WEIGHED {
            return Ok(None);
        }
        let count = terms.len() + others.len();
        add_up(&mut terms, others);
        if terms.len() == count || !fit(&terms) { Ok(None) } else { self.sum(&terms).map(Some) }
    }

    /// The summands of a node. The primal's own sums are taken apart only at full depth.
    #[recursive::recursive]
    fn terms(&mut self, id: NodeId, depth: Depth) -> Result<Vec<Term>> {
        if let Expr::Negative(_) = self.node(id).shape {
            let positive = self.node(id).children[0];
            let mut terms = self.terms(positive, depth)?;
            terms.iter_mut().for_each(|term| term.monomial.coefficient *= -1.0);
            return Ok(terms);
        }
        let apart = self.data_type(id) == self.working_type() && (depth == Depth::Full || !self.is_primal(id));
        for (op, sign) in [(Operator::Plus, 1.0), (Operator::Minus, -1.0)] {
            if apart && let Some((a, b)) = self.as_binary(id, op) {
                let mut terms = self.terms(a, depth)?;
                let mut others = self.terms(b, depth)?;
                others.iter_mut().for_each(|term| term.monomial.coefficient *= sign);
                terms.append(&mut others);
                return Ok(terms);
            }
        }
        let monomial = self.monomial(id, Depth::Full)?.as_ref().clone();
        let node = if monomial.coefficient < 0.0 { None } else { Some(id) };
        Ok(vec![Term { monomial, node }])
    }

    /// The sum of these summands, a positive one first if there is one.
    fn sum(&mut self, terms: &[Term]) -> Result<NodeId> {
        let (positive, negative): (Vec<_>, Vec<_>) = terms.iter().partition(|term| term.monomial.coefficient >= 0.0);
        let mut sum = None;
        for term in positive.into_iter().chain(negative) {
            let unsigned = match term.node {
                Some(node) => node,
                None => {
                    let coefficient = term.monomial.coefficient.abs();
                    self.product_of(&Monomial { coefficient, ..term.monomial.clone() })?
                }
            };
            let signed = if term.monomial.coefficient < 0.0 { self.negate(unsigned)? } else { unsigned };
            sum = Some(match sum {
                None => signed,
                Some(sum) => self.plain_sum(sum, signed)?,
            });
        }
        match sum {
            Some(sum) => Ok(sum),
            None => self.number(0.0),
        }
    }

    /// The common factors of `p` and `q`, and `p + q` with them drawn out.
    fn factored(&mut self, p: &Monomial, q: &Monomial) -> Result<Option<(NodeId, NodeId)>> {
        let common = p.common(q, false);
        if common.is_one() {
            return Ok(None);
        }
        let (p, q) = (self.product_of(&p.over(&common))?, self.product_of(&q.over(&common))?);
        let common = self.product_of(&common)?;
        let sum = self.add(p, q)?;
        Ok(Some((common, self.multiply(common, sum)?)))
    }

    /// `p + q` over their common denominator, if the sum in the numerator shrinks to a single term: with `u = a + x`,
    /// `a / u - a * x / u^2` is `a * a / u^2`.
    fn over_denominator(&mut self, p: &Monomial, q: &Monomial) -> Result<Option<NodeId>> {
        let common = p.common(q, true);
        let (p, q) = (p.over(&common), q.over(&common));
        if p.single().is_none() && q.single().is_none() {
            return Ok(None);
        }
        let mut terms = self.linear(&p)?;
        let others = self.linear(&q)?;
        if terms.len() + others.len() > MOST_WEIGHED || !fit(&terms) || !fit(&others) {
            return Ok(None);
        }
        add_up(&mut terms, others);
        match terms.as_slice() {
            [] => self.number(0.0).map(Some),
            [term] => {
                let product = common.times(&term.monomial, 1.0);
                if product.coefficient.is_normal() { self.product_of(&product).map(Some) } else { Ok(None) }
            }
            _ => Ok(None),
        }
    }

    /// The summands of a multiple of a sum.
    fn linear(&mut self, monomial: &Monomial) -> Result<Vec<Term>> {
        let Some(sum) = monomial.single() else {
            return Ok(vec![Term { monomial: monomial.clone(), node: None }]);
        };
        let mut terms = self.terms(sum, Depth::Full)?;
        for term in &mut terms {
            term.monomial.coefficient *= monomial.coefficient;
            term.node = None;
        }
        Ok(terms)
    }
}

/// Whether no number has become 0, infinite or inexact where others would have made up for it: `1e-200 * (1e-200 * exp(x))`.
fn fit(terms: &[Term]) -> bool {
    terms.iter().all(|term| term.monomial.coefficient.is_normal())
}

/// Adds each of `others` to the term that is a multiple of it, or else to the end.
fn add_up(terms: &mut Vec<Term>, others: Vec<Term>) {
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
