//! Signs, drawn outwards while a derivative is made and put where they cost the least in the end.

use datafusion_common::Result;
use datafusion_expr::{Expr, Operator};

use super::monomials::Algebra;
use crate::graph::{NodeId, operand};

impl Algebra<'_> {
    /// `-a`.
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
    pub fn without_signs(&mut self, operands: [NodeId; 2]) -> Result<(bool, [NodeId; 2])> {
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
    pub fn as_negation(&mut self, a: NodeId) -> Result<Option<NodeId>> {
        match self.as_number(a) {
            Some(value) if value < 0.0 => self.number(-value).map(Some),
            _ => Ok(match self.node(a).shape {
                Expr::Negative(_) => Some(self.node(a).children[0]),
                _ => None,
            }),
        }
    }

    /// `a + b`, written as a difference where one of them is negative.
    pub fn plain_sum(&mut self, a: NodeId, b: NodeId) -> Result<NodeId> {
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
}
