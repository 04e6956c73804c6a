//! Sums and products in the form that takes the fewest operations.
//!
//! Zeros and ones are folded, numbers merged and signs drawn outwards at once. Beyond that, an operation is written as it
//! stands or in one of a few other forms: a product from its factors, with what cancels gone; a sum with like terms
//! merged, with common factors drawn out, or over a common denominator. The cheapest wins, on a tie the form as it stands,
//! because that is the one whose parts other derivatives of the query share.
//!
//! A structural zero is exact, as JAX's symbolic zeros are: `0 * x` is 0 also where `x` is NaN.

use datafusion_common::Result;
use datafusion_expr::{Expr, Operator};
use std::collections::HashSet;

use super::monomial::{Depth, Monomial};
use super::{Dag, NodeId, operand};

/// Larger expressions are left as they stand.
const MOST_WEIGHED: usize = 200;

/// A summand of a sum, with its sign in the coefficient.
#[derive(Clone)]
struct Term {
    monomial: Monomial,
    /// The node it stands for, but for its sign.
    node: Option<NodeId>,
}

impl Dag<'_> {
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

    pub fn subtract(&mut self, a: NodeId, b: NodeId) -> Result<NodeId> {
        let b = self.negate(b)?;
        self.add(a, b)
    }

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
                if self.as_number(a).is_some() || self.as_number(p).is_some() {
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

    pub fn negate(&mut self, a: NodeId) -> Result<NodeId> {
        if let Some(a) = self.as_negation(a)? {
            return Ok(a);
        }
        if let Some(value) = self.as_number(a) {
            return self.number(-value);
        }
        let a = self.cast_to_working_type(a)?;
        self.intern(Expr::Negative(Box::new(operand(0))), vec![a])
    }

    /// The same value, its sign put where it costs nothing or is shared with other derivatives of the query.
    pub fn place_sign(&mut self, root: NodeId) -> Result<NodeId> {
        match &self.node(root).shape {
            Expr::Negative(_) if !self.is_primal(root) => {
                let positive = self.node(root).children[0];
                match self.negated_inside(positive, false)? {
                    Some(negated) => Ok(negated),
                    None => Ok(self.negated_inside(positive, true)?.unwrap_or(root)),
                }
            }
            _ => Ok(root),
        }
    }

    /// The negation of a product with the sign on one of its factors: on one whose negation is there already or costs
    /// nothing, or if `leftmost`, on the first.
    #[recursive::recursive]
    fn negated_inside(&mut self, id: NodeId, leftmost: bool) -> Result<Option<NodeId>> {
        if let Some(value) = self.as_number(id) {
            return self.number(-value).map(Some);
        }
        let primal = self.is_primal(id);
        if let Some(known) = self.existing(Expr::Negative(Box::new(operand(0))), vec![id])
            && self.is_primal(known)
        {
            return Ok(Some(known));
        }
        let Expr::BinaryExpr(binary) = &self.node(id).shape else {
            return Ok(None);
        };
        let op = binary.op;
        let (a, b) = (self.node(id).children[0], self.node(id).children[1]);
        match op {
            Operator::Minus if !primal => self.binary(b, Operator::Minus, a).map(Some),
            Operator::Multiply | Operator::Divide if !primal => {
                if let Some(negated) = self.negated_inside(a, leftmost)? {
                    return self.binary(negated, op, b).map(Some);
                }
                if leftmost {
                    let negated = self.negate(a)?;
                    return self.binary(negated, op, b).map(Some);
                }
                match self.negated_inside(b, false)? {
                    Some(negated) => self.binary(a, op, negated).map(Some),
                    None => Ok(None),
                }
            }
            _ => Ok(None),
        }
    }

    /// The operands without their signs, and whether the signs make a minus.
    fn without_signs(&mut self, operands: [NodeId; 2]) -> Result<(bool, [NodeId; 2])> {
        let mut negative = false;
        let mut positive = operands;
        for id in &mut positive {
            if let Some(other) = self.as_negation(*id)? {
                *id = other;
                negative = !negative;
            }
        }
        Ok((negative, positive))
    }

    /// `b` if `a` is `-b`, a negative number included.
    fn as_negation(&mut self, a: NodeId) -> Result<Option<NodeId>> {
        match self.as_number(a) {
            Some(value) if value < 0.0 => self.number(-value).map(Some),
            _ => Ok(match self.node(a).shape {
                Expr::Negative(_) => Some(self.node(a).children[0]),
                _ => None,
            }),
        }
    }

    /// `a + b`, written as a difference where one of them is negative.
    fn plain_sum(&mut self, a: NodeId, b: NodeId) -> Result<NodeId> {
        match (self.as_negation(a)?, self.as_negation(b)?) {
            // -1 - x rather than -(1 + x), which is -0 where x is -1.
            (Some(number), Some(b)) if self.as_number(number).is_some() => self.binary(a, Operator::Minus, b),
            (Some(a), Some(number)) if self.as_number(number).is_some() => self.binary(b, Operator::Minus, a),
            (Some(a), Some(b)) => {
                let sum = self.binary(a, Operator::Plus, b)?;
                self.negate(sum)
            }
            (Some(a), None) => self.binary(b, Operator::Minus, a),
            (None, Some(b)) => self.binary(a, Operator::Minus, b),
            (None, None) => self.binary(a, Operator::Plus, b),
        }
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

    /// `a + b` if a summand of `a` is a multiple of one of `b`: those are added up.
    fn merge_like_terms(&mut self, a: NodeId, b: NodeId) -> Result<Option<NodeId>> {
        let mut terms = self.terms(a, Depth::Derivative)?;
        let others = self.terms(b, Depth::Derivative)?;
        if terms.len() + others.len() > MOST_WEIGHED {
            return Ok(None);
        }
        let count = terms.len() + others.len();
        add_up(&mut terms, others);
        if terms.len() == count { Ok(None) } else { self.sum(&terms).map(Some) }
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
        let apart = self.data_type(id) == &self.working_type && (depth == Depth::Full || !self.is_primal(id));
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
        if terms.len() + others.len() > MOST_WEIGHED {
            return Ok(None);
        }
        add_up(&mut terms, others);
        match terms.as_slice() {
            [] => self.number(0.0).map(Some),
            [term] => self.product_of(&common.times(&term.monomial, 1.0)).map(Some),
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

    /// The first of the cheapest; the first of all if that one is too large to be weighed.
    fn cheapest(&self, candidates: &[NodeId]) -> NodeId {
        let mut best = candidates[0];
        let Some(mut least) = self.cost(best) else { return best };
        for candidate in &candidates[1..] {
            if let Some(cost) = self.cost(*candidate).filter(|cost| *cost < least) {
                (best, least) = (*candidate, cost);
            }
        }
        best
    }

    /// The number of operations in a sum of products, and how many of them the primal does not have; none if there are
    /// too many to weigh.
    fn cost(&self, root: NodeId) -> Option<(usize, usize)> {
        let mut seen = HashSet::from([root]);
        let mut open = vec![root];
        let mut cost = (0, 0);
        while let Some(id) = open.pop() {
            let node = self.node(id);
            let (own, arithmetic) = match &node.shape {
                Expr::Literal(..) | Expr::Column(_) => continue,
                Expr::Negative(_) => (1, true),
                Expr::BinaryExpr(binary) => {
                    let arithmetic = [Operator::Plus, Operator::Minus, Operator::Multiply, Operator::Divide];
                    (1, arithmetic.contains(&binary.op))
                }
                Expr::ScalarFunction(call) if call.func.name() == "sqrt" => (1, true),
                // A power is worth some products.
                Expr::ScalarFunction(call) if call.func.name() == "power" => (4, true),
                _ => (1, false),
            };
            cost.0 += own;
            cost.1 += if self.is_primal(id) { 0 } else { own };
            if arithmetic {
                open.extend(node.children.iter().filter(|child| seen.insert(**child)));
            }
            if seen.len() > MOST_WEIGHED {
                return None;
            }
        }
        Some(cost)
    }
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
