//! Expressions that choose among values: `CASE`, and functions such as `greatest` whose rule is one.
//!
//! A branch that is not taken contributes nothing, even where its derivative is infinite or NaN.

use datafusion_common::Result;
use datafusion_expr::{Expr, Operator};
use std::collections::{HashMap, HashSet};

use super::nulls::NullSets;
use crate::algebra::{Algebra, add, divide, is_always_finite, is_finite, multiply, negate, subtract};
use crate::graph::{NodeId, branches};

/// `a + b` or `a - b`.
type Sum = fn(&mut Algebra, NodeId, NodeId) -> Result<NodeId>;

/// The derivatives of `CASE` that are 0 in some branches.
#[derive(Debug, Default)]
pub struct Choices {
    nodes: HashSet<NodeId>,
    /// The tangents among them, each with its column.
    tangents: HashMap<NodeId, NodeId>,
    /// The depth of nested choices: a derivative within a choice is multiplied by its cotangents later.
    depth: usize,
}

impl Choices {
    /// Builds the derivative of CASE from those of its branches, in their order, under the same conditions, so that what a branch not taken
    /// would compute never enters. Returns `None` if all are 0.
    pub fn differentiate_case(
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
        let mut has_choice = false;
        for (value, derivative) in branches(&case).into_iter().zip(derivatives) {
            let mut required = nulls.sources(algebra, children[value]);
            // WHEN x > 0 THEN ...: the condition has seen to it that x is not NULL.
            if first == 0 && (value - first) % 2 == 1 {
                let excluded = nulls.excluded_by(algebra, children[value - 1]);
                required.retain(|source| !excluded.contains(source));
            }
            let exact = nulls.guard(algebra, derivative, &required, None)?;
            if self.contains(algebra, derivative) {
                self.nodes.insert(exact);
                has_choice = true;
            }
            parts[value] = algebra.cast_to_working_type(exact)?;
            has_choice |= vanishes(algebra, parts[value]);
        }
        let derivative = algebra.intern(Expr::Case(case), parts)?;
        nulls.equate(algebra, derivative, id);
        if has_choice {
            self.nodes.insert(derivative);
        }
        Ok(Some(derivative))
    }

    /// Records a tangent that is 0 in branches that do not vary as a choice.
    pub fn add_tangent(&mut self, algebra: &Algebra, tangent: NodeId) {
        if let Some(column) = tangent_of(algebra, tangent).filter(|column| *column != tangent) {
            self.nodes.insert(tangent);
            self.tangents.insert(tangent, column);
        }
    }

    /// Multiplies a cotangent by a tangent, or by a cotangent of a node above. Each of the two may be a choice, and the other infinite or
    /// NaN. Within a choice, which may meet an infinite cotangent, a tangent keeps its condition:
    ///
    /// ```sql
    /// sqrt(least(z, 1.5))                              -- at z = 0, where a CTE has z as greatest(x, 0)
    /// ```
    pub fn multiply_tangent(
        &mut self,
        algebra: &mut Algebra,
        nulls: &mut NullSets,
        [first, second]: [NodeId; 2],
    ) -> Result<NodeId> {
        for (factor, choice) in [(first, second), (second, first)] {
            if !self.chooses(algebra, choice) {
                continue;
            }
            if !is_always_finite(algebra, factor) {
                return self.multiply_branches(algebra, nulls, factor, choice);
            }
            if let Some(column) = tangent_of(algebra, choice).filter(|_| !self.is_inside()) {
                return multiply(algebra, factor, column);
            }
        }
        multiply(algebra, first, second)
    }

    /// Returns whether a derivative is that of a choice, or a sum with one.
    #[recursive::recursive]
    fn chooses(&self, algebra: &Algebra, id: NodeId) -> bool {
        let node = algebra.node(id);
        match (&node.shape, node.children.as_slice()) {
            (Expr::BinaryExpr(binary), [a, b]) if matches!(binary.op, Operator::Plus | Operator::Minus) => {
                self.chooses(algebra, *a) || self.chooses(algebra, *b)
            }
            _ => self.contains(algebra, id),
        }
    }

    /// Multiplies a cotangent by the derivative of a `CASE`.
    ///
    /// A cotangent that can be infinite goes into the `CASE`, branch by branch, so that a branch that does not vary contributes nothing:
    /// `sqrt(greatest(x, 0))` has the derivative 0 at -1. Any other stays outside, where the derivatives of a query share it.
    pub fn pull_back(
        &mut self,
        algebra: &mut Algebra,
        nulls: &mut NullSets,
        cotangent: NodeId,
        partial: NodeId,
    ) -> Result<NodeId> {
        let product = if !is_finite(algebra, cotangent) {
            self.multiply_branches(algebra, nulls, cotangent, partial)?
        } else if self.chooses(algebra, cotangent) && !is_always_finite(algebra, partial) {
            // The tangents in a derivative may be infinite where the cotangent is that of a branch which is not taken.
            self.multiply_branches(algebra, nulls, partial, cotangent)?
        } else {
            multiply(algebra, cotangent, partial)?
        };
        if self.is_inside() { Ok(product) } else { self.strip_conditions(algebra, nulls, product) }
    }

    /// Multiplies a cotangent into each branch of the derivative of a `CASE`.
    #[recursive::recursive]
    fn multiply_branches(
        &mut self,
        algebra: &mut Algebra,
        nulls: &mut NullSets,
        cotangent: NodeId,
        partial: NodeId,
    ) -> Result<NodeId> {
        for (op, sum) in [(Operator::Plus, add as Sum), (Operator::Minus, subtract)] {
            let Some((a, b)) = algebra.as_binary(partial, op) else { continue };
            if self.chooses(algebra, a) || self.chooses(algebra, b) {
                let a = self.multiply_branches(algebra, nulls, cotangent, a)?;
                let b = self.multiply_branches(algebra, nulls, cotangent, b)?;
                return sum(algebra, a, b);
            }
        }
        for (op, sides) in [(Operator::Multiply, &[0, 1][..]), (Operator::Divide, &[0])] {
            let Some((a, b)) = algebra.as_binary(partial, op) else { continue };
            for side in sides {
                let (choice, other) = if *side == 0 { (a, b) } else { (b, a) };
                if self.contains(algebra, choice) {
                    let one = algebra.number(1.0)?;
                    let factor = if op == Operator::Multiply { other } else { divide(algebra, one, other)? };
                    // The factor may be another choice.
                    let cotangent = self.multiply_branches(algebra, nulls, cotangent, factor)?;
                    return self.multiply_branches(algebra, nulls, cotangent, choice);
                }
            }
        }
        let shape = match &algebra.node(partial).shape {
            Expr::Case(case) if self.nodes.contains(&partial) => case.clone(),
            Expr::Negative(_) => {
                let choice = algebra.node(partial).children[0];
                let positive = self.multiply_branches(algebra, nulls, cotangent, choice)?;
                return negate(algebra, positive);
            }
            // The other one may be a choice as well.
            _ if self.chooses(algebra, cotangent)
                && !self.chooses(algebra, partial)
                && !is_always_finite(algebra, partial) =>
            {
                return self.multiply_branches(algebra, nulls, partial, cotangent);
            }
            _ => return multiply(algebra, cotangent, partial),
        };
        let mut children = algebra.node(partial).children.clone();
        for value in branches(&shape) {
            if !vanishes(algebra, children[value]) {
                let contribution = self.multiply_branches(algebra, nulls, cotangent, children[value])?;
                children[value] = algebra.cast_to_working_type(contribution)?;
            }
        }
        let product = algebra.intern(Expr::Case(shape), children)?;
        nulls.equate(algebra, product, partial);
        self.nodes.insert(product);
        Ok(product)
    }

    /// Enters a choice, whose branches are differentiated.
    pub fn enter(&mut self) {
        self.depth += 1;
    }

    /// Leaves a choice.
    pub fn leave(&mut self) {
        self.depth -= 1;
    }

    /// Returns whether the derivative is taken within a choice.
    pub fn is_inside(&self) -> bool {
        self.depth > 0
    }

    /// Replaces tangents that have a condition by their columns. All that they could meet has been multiplied by then.
    #[recursive::recursive]
    fn strip_conditions(&mut self, algebra: &mut Algebra, nulls: &mut NullSets, id: NodeId) -> Result<NodeId> {
        if !self.chooses(algebra, id) {
            return Ok(id);
        }
        if let Some(column) = self.tangents.get(&id) {
            return Ok(*column);
        }
        let node = algebra.node(id);
        let (shape, mut children) = (node.shape.clone(), node.children.clone());
        match (&shape, children.as_slice()) {
            (Expr::Negative(_), [choice]) => {
                let positive = self.strip_conditions(algebra, nulls, *choice)?;
                negate(algebra, positive)
            }
            (Expr::BinaryExpr(binary), [a, b]) => {
                let a = self.strip_conditions(algebra, nulls, *a)?;
                let b = self.strip_conditions(algebra, nulls, *b)?;
                match binary.op {
                    Operator::Multiply => multiply(algebra, a, b),
                    Operator::Divide => divide(algebra, a, b),
                    Operator::Plus => add(algebra, a, b),
                    Operator::Minus => subtract(algebra, a, b),
                    _ => Ok(id),
                }
            }
            (Expr::Case(case), _) => {
                for value in branches(case) {
                    let branch = self.strip_conditions(algebra, nulls, children[value])?;
                    children[value] = algebra.cast_to_working_type(branch)?;
                }
                let derivative = algebra.intern(shape, children)?;
                nulls.equate(algebra, derivative, id);
                self.nodes.insert(derivative);
                Ok(derivative)
            }
            _ => Ok(id),
        }
    }

    /// Returns whether a derivative is that of a choice, apart from factors.
    #[recursive::recursive]
    pub fn contains(&self, algebra: &Algebra, id: NodeId) -> bool {
        let node = algebra.node(id);
        match (&node.shape, node.children.as_slice()) {
            (Expr::Negative(_), [choice]) => self.contains(algebra, *choice),
            (Expr::BinaryExpr(binary), [a, b]) => match binary.op {
                Operator::Multiply => self.contains(algebra, *a) || self.contains(algebra, *b),
                Operator::Divide => self.contains(algebra, *a),
                _ => false,
            },
            _ => self.nodes.contains(&id),
        }
    }

    /// Adds the choices of another sweep.
    pub fn extend(&mut self, other: Self) {
        self.nodes.extend(other.nodes);
    }
}

/// Returns the column of a tangent: itself, or the value of the `CASE` where the tangent is not 0.
pub fn tangent_of(algebra: &Algebra, tangent: NodeId) -> Option<NodeId> {
    let node = algebra.node(tangent);
    let column = match &node.shape {
        Expr::Case(case) => {
            let values = branches(case).into_iter().map(|value| node.children[value]);
            let mut others = values.filter(|value| !vanishes(algebra, *value));
            others.next().filter(|_| others.next().is_none())?
        }
        _ => tangent,
    };
    matches!(algebra.node(column).shape, Expr::Column(_)).then_some(column)
}

/// Returns whether a branch is 0 wherever it is not NULL.
#[recursive::recursive]
fn vanishes(algebra: &Algebra, id: NodeId) -> bool {
    let node = algebra.node(id);
    match &node.shape {
        Expr::Case(case) => branches(case).into_iter().all(|value| vanishes(algebra, node.children[value])),
        Expr::Literal(scalar, _) => scalar.is_null() || algebra.is_zero(id),
        _ => false,
    }
}
