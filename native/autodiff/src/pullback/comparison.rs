//! Choices that are differentiated through what their conditions compare.

use datafusion_expr::{Expr, Operator};
use std::collections::HashSet;

use super::nulls::NullSets;
use crate::algebra::{self, Algebra, is_finite};
use crate::graph::{NodeId, branches};
use crate::rules::Rules;
use crate::vocabulary::types::is_float;

/// The varying nodes around a choice.
pub struct VaryingContext<'s, 'a> {
    /// The rules.
    pub rules: &'s Rules,
    /// The nodes.
    pub algebra: &'s Algebra<'a>,
    /// The nodes that vary with a variable.
    pub active: &'s HashSet<NodeId>,
    /// The variables.
    pub variables: &'s [NodeId],
}

impl VaryingContext<'_, '_> {
    /// Returns the operands that the conditions of a `CASE` compare, if all that varies enters through them and it is cheaper to
    /// differentiate the `CASE` by these.
    ///
    /// It is cheaper where one such choice follows another, as in a network of rectified units: its derivative as a whole would be expanded
    /// for each of the parameters. Since the derivatives by operands multiply what comes before, that must have finite derivatives, or a
    /// branch that is not taken would contribute 0 times infinity.
    pub fn find_compared(
        &self,
        nulls: &mut NullSets,
        case: NodeId,
        output: NodeId,
        cotangent: NodeId,
    ) -> Option<Vec<NodeId>> {
        let Expr::Case(shape) = &self.algebra.node(case).shape else { return None };
        let children = &self.algebra.node(case).children;
        let mut operands = Operands { output, seen: HashSet::new(), found: vec![] };
        if shape.expr.is_none() {
            for condition in (0..shape.when_then_expr.len()).map(|i| children[2 * i]) {
                operands.add(self.algebra, condition);
            }
        }
        let below: HashSet<_> = self.algebra.reachable(output).into_iter().collect();
        // Texts and times are compared as well, but are not converted back to numbers.
        let is_number = |id: &NodeId| is_float(self.algebra.data_type(*id));
        let mut compared = operands.found;
        compared.retain(|id| self.active.contains(id) && *id != output && below.contains(id) && is_number(id));
        let through: HashSet<_> = compared.iter().copied().collect();
        let values: Vec<_> = branches(shape).into_iter().map(|value| children[value]).collect();
        // Nor may it be NULL where the choice is not.
        let sources = nulls.sources(self.algebra, output);
        for id in &compared {
            if !nulls.sources(self.algebra, *id).is_subset(&sources) {
                return None;
            }
        }
        let fits = compared.iter().any(|id| self.chooses(*id))
            && !compared.iter().any(|id| self.varies_with_another(*id, &through))
            && !self.varies_beside(&values, &through)
            && compared.iter().all(|id| self.is_smooth(*id))
            && is_finite(self.algebra, cotangent);
        fits.then_some(compared)
    }

    /// Returns whether the derivatives of a node are finite. Nothing is known of user rules.
    fn is_smooth(&self, root: NodeId) -> bool {
        algebra::is_smooth(self.algebra, root)
            && !self.algebra.reachable(root).into_iter().any(|id| self.has_user_rule(id))
    }

    /// Returns whether a choice lies between a node and the variables.
    fn chooses(&self, root: NodeId) -> bool {
        let varies = |id: &NodeId| self.active.contains(id) && !self.variables.contains(id);
        let chooses = |id: NodeId| self.algebra.node(id).is_choice() && !self.has_user_rule(id);
        self.algebra.reachable(root).into_iter().filter(varies).any(chooses)
    }

    fn has_user_rule(&self, id: NodeId) -> bool {
        match &self.algebra.node(id).shape {
            Expr::ScalarFunction(call) => self.rules.has_user_rule(&call.func, call.args.len()),
            _ => false,
        }
    }

    /// Returns whether a node is computed from another of these.
    fn varies_with_another(&self, id: NodeId, nodes: &HashSet<NodeId>) -> bool {
        self.algebra.reachable(id).iter().any(|other| *other != id && nodes.contains(other))
    }

    /// Returns whether one of the values varies in another way than through these nodes.
    fn varies_beside(&self, values: &[NodeId], through: &HashSet<NodeId>) -> bool {
        let mut open = values.to_vec();
        let mut seen = HashSet::new();
        while let Some(id) = open.pop() {
            if self.variables.contains(&id) && !through.contains(&id) {
                return true;
            }
            if self.active.contains(&id) && !through.contains(&id) && seen.insert(id) {
                open.extend(&self.algebra.node(id).children);
            }
        }
        false
    }
}

/// What the conditions of a choice compare, each node once. To be compared with the output of the choice is to be compared with
/// its inputs.
struct Operands {
    output: NodeId,
    seen: HashSet<NodeId>,
    found: Vec<NodeId>,
}

impl Operands {
    /// Adds the operands of a condition.
    #[recursive::recursive]
    fn add(&mut self, algebra: &Algebra, condition: NodeId) {
        let node = algebra.node(condition);
        let Expr::BinaryExpr(binary) = &node.shape else { return };
        match binary.op {
            Operator::And | Operator::Or => node.children.iter().for_each(|child| self.add(algebra, *child)),
            Operator::Eq | Operator::NotEq | Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq => {
                for operand in node.children.iter().map(|operand| strip_casts(algebra, *operand)) {
                    if !self.seen.insert(operand) {
                        continue;
                    }
                    if operand == self.output {
                        let inputs = algebra.node(operand).children.iter().map(|input| strip_casts(algebra, *input));
                        self.found.extend(inputs.filter(|input| self.seen.insert(*input)));
                    } else {
                        self.found.push(operand);
                    }
                }
            }
            _ => {}
        }
    }
}

/// Strips casts from a node.
fn strip_casts(algebra: &Algebra, mut id: NodeId) -> NodeId {
    while let Expr::Cast(_) = &algebra.node(id).shape {
        id = algebra.node(id).children[0];
    }
    id
}
