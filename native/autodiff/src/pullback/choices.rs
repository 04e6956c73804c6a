//! Expressions that choose among values: `CASE`, and functions such as `greatest` whose rule is one.
//!
//! A branch that is not taken contributes nothing, even where its derivative is infinite or NaN.

use datafusion_common::Result;
use datafusion_expr::{Expr, Operator};
use std::collections::HashSet;

use super::nulls::NullSets;
use crate::algebra::{Algebra, divide, is_finite, multiply, negate};
use crate::graph::{NodeId, branches};

/// The derivatives of `CASE` that are 0 in some branches.
#[derive(Debug, Default)]
pub struct Choices(HashSet<NodeId>);

impl Choices {
    /// The derivative of CASE by those of its branches, in their order, under the same conditions, so that what a branch not taken
    /// would compute never enters; none if all are 0.
    pub fn case(
        &mut self,
        algebra: &mut Algebra,
        nulls: &mut NullSets,
        id: NodeId,
        derivatives: Vec<NodeId>,
    ) -> Result<Option<NodeId>> {
        let Expr::Case(case) = &algebra.node(id).shape else { return Ok(None) };
        let case = case.clone();
        let children = algebra.node(id).children.clone();
        if derivatives.iter().all(|derivative| algebra.is_zero(*derivative)) {
            return Ok(None);
        }
        let first = usize::from(case.expr.is_some());
        let mut parts = children.clone();
        let mut chosen = false;
        for (value, derivative) in branches(&case).into_iter().zip(derivatives) {
            let mut required = nulls.of(algebra, children[value]);
            // WHEN x > 0 THEN ...: the condition has seen to it that x is not NULL.
            if first == 0 && (value - first) % 2 == 1 {
                let seen_to = nulls.ruled_out_by(algebra, children[value - 1]);
                required.retain(|source| !seen_to.contains(source));
            }
            let exact = nulls.guard(algebra, derivative, &required, None)?;
            if self.contain(algebra, derivative) {
                self.0.insert(exact);
                chosen = true;
            }
            parts[value] = algebra.cast_to_working_type(exact)?;
            chosen |= vanishes(algebra, parts[value]);
        }
        let derivative = algebra.intern(Expr::Case(case), parts)?;
        nulls.equate(algebra, derivative, id);
        if chosen {
            self.0.insert(derivative);
        }
        Ok(Some(derivative))
    }

    /// The product of a cotangent and the derivative of a `CASE`.
    ///
    /// A cotangent that can be infinite goes into the `CASE`, branch by branch, so that a branch that does not vary
    /// contributes nothing: `sqrt(greatest(x, 0))` has the derivative 0 at -1. Any other stays outside, where the
    /// derivatives of a query share it.
    #[recursive::recursive]
    pub fn pulled_back(
        &mut self,
        algebra: &mut Algebra,
        nulls: &mut NullSets,
        cotangent: NodeId,
        partial: NodeId,
    ) -> Result<NodeId> {
        if is_finite(algebra, cotangent) {
            return multiply(algebra, cotangent, partial);
        }
        for (op, sides) in [(Operator::Multiply, &[0, 1][..]), (Operator::Divide, &[0])] {
            let Some((a, b)) = algebra.as_binary(partial, op) else { continue };
            for side in sides {
                let (choice, other) = if *side == 0 { (a, b) } else { (b, a) };
                if self.contain(algebra, choice) {
                    let one = algebra.number(1.0)?;
                    let factor = if op == Operator::Multiply { other } else { divide(algebra, one, other)? };
                    // The factor may be another choice.
                    let cotangent = self.pulled_back(algebra, nulls, cotangent, factor)?;
                    return self.pulled_back(algebra, nulls, cotangent, choice);
                }
            }
        }
        let shape = match &algebra.node(partial).shape {
            Expr::Case(case) if self.0.contains(&partial) => case.clone(),
            Expr::Negative(_) => {
                let choice = algebra.node(partial).children[0];
                let positive = self.pulled_back(algebra, nulls, cotangent, choice)?;
                return negate(algebra, positive);
            }
            _ => return multiply(algebra, cotangent, partial),
        };
        let mut children = algebra.node(partial).children.clone();
        for value in branches(&shape) {
            if !vanishes(algebra, children[value]) {
                let contribution = self.pulled_back(algebra, nulls, cotangent, children[value])?;
                children[value] = algebra.cast_to_working_type(contribution)?;
            }
        }
        let product = algebra.intern(Expr::Case(shape), children)?;
        nulls.equate(algebra, product, partial);
        self.0.insert(product);
        Ok(product)
    }

    /// Whether a derivative is that of a choice, but for factors.
    #[recursive::recursive]
    pub fn contain(&self, algebra: &Algebra, id: NodeId) -> bool {
        let node = algebra.node(id);
        match (&node.shape, node.children.as_slice()) {
            (Expr::Negative(_), [choice]) => self.contain(algebra, *choice),
            (Expr::BinaryExpr(binary), [a, b]) => match binary.op {
                Operator::Multiply => self.contain(algebra, *a) || self.contain(algebra, *b),
                Operator::Divide => self.contain(algebra, *a),
                _ => false,
            },
            _ => self.0.contains(&id),
        }
    }

    /// Adds those of another sweep.
    pub fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }
}

/// Whether a branch is 0, also if it is so only where it is not NULL.
#[recursive::recursive]
fn vanishes(algebra: &Algebra, id: NodeId) -> bool {
    let node = algebra.node(id);
    match &node.shape {
        Expr::Case(case) => branches(case).into_iter().all(|value| vanishes(algebra, node.children[value])),
        Expr::Literal(scalar, _) => scalar.is_null() || algebra.is_zero(id),
        _ => false,
    }
}
