//! Expressions that choose among values: `CASE`, and functions such as `greatest` whose rule is one.
//!
//! A branch that is not taken contributes nothing, even where its derivative is infinite or NaN.

use datafusion_expr::{Case, Expr, Operator};
use std::collections::{HashMap, HashSet};

use super::activity::activate;
use super::refusal::Stopped;
use super::sweep::{Contribution, Pullback};
use crate::algebra::Algebra;
use crate::graph::{NodeId, branches};
use crate::vocabulary::types::is_float;

impl Pullback<'_, '_> {
    /// CASE is differentiated branch by branch under the same conditions, tangents included, so that what a branch not
    /// taken would compute never enters.
    pub(super) fn case(&mut self, id: NodeId, case: &Case, children: &[NodeId]) -> Result<Contribution, Stopped> {
        let first = usize::from(case.expr.is_some());
        let values = branches(case);
        let derivatives =
            values.iter().map(|value| self.derivative(children[*value])).collect::<Result<Vec<_>, _>>()?;
        if derivatives.iter().all(|derivative| self.algebra.is_zero(*derivative)) {
            return Ok(Contribution::Partials(vec![]));
        }
        let mut parts = children.to_vec();
        let mut chosen = false;
        for (value, derivative) in values.iter().zip(derivatives) {
            let mut required = self.nulls.of(self.algebra, children[*value]);
            // WHEN x > 0 THEN ...: the condition has seen to it that x is not NULL.
            if first == 0 && (*value - first) % 2 == 1 {
                let seen_to = self.nulls.ruled_out_by(self.algebra, children[*value - 1]);
                required.retain(|source| !seen_to.contains(source));
            }
            let exact = self.nulls.guard(self.algebra, derivative, &required, None)?;
            if self.is_of_choice(derivative) {
                self.choices.insert(exact);
                chosen = true;
            }
            parts[*value] = self.algebra.cast_to_working_type(exact)?;
            chosen |= self.vanishes(parts[*value]);
        }
        let derivative = self.algebra.intern(Expr::Case(case.clone()), parts)?;
        self.nulls.equate(self.algebra, derivative, id);
        if chosen {
            self.choices.insert(derivative);
        }
        Ok(Contribution::Derivative(derivative))
    }

    /// The partial derivatives of a `CASE` by what its conditions compare, if all that varies enters through that.
    ///
    /// They are worth it where one such choice follows on another, as in a network of rectified units: its derivative as a
    /// whole would be taken apart for each of the parameters. Since they multiply what comes before, that must have finite
    /// derivatives, or a branch that is not taken would contribute 0 times infinity.
    pub(super) fn by_compared(
        &mut self,
        case: NodeId,
        output: NodeId,
        cotangent: NodeId,
    ) -> Result<Option<Contribution>, Stopped> {
        let Expr::Case(shape) = &self.algebra.node(case).shape else { return Ok(None) };
        let children = &self.algebra.node(case).children;
        let mut operands = Operands { output, seen: HashSet::new(), found: vec![] };
        if shape.expr.is_none() {
            for condition in (0..shape.when_then_expr.len()).map(|i| children[2 * i]) {
                operands.add(self.algebra, condition);
            }
        }
        let below: HashSet<_> = self.algebra.reachable(output).into_iter().collect();
        // Texts and times are compared as well, but no number is made of them again.
        let is_number = |id: &NodeId| is_float(self.algebra.data_type(*id));
        let mut compared = operands.found;
        compared.retain(|id| self.active.contains(id) && *id != output && below.contains(id) && is_number(id));
        let through: HashSet<_> = compared.iter().copied().collect();
        let values: Vec<_> = branches(shape).into_iter().map(|value| children[value]).collect();
        // Nor may it be NULL where the choice is not.
        let sources = self.nulls.of(self.algebra, output);
        for id in &compared {
            if !self.nulls.of(self.algebra, *id).is_subset(&sources) {
                return Ok(None);
            }
        }
        let fits = compared.iter().any(|id| self.chooses(*id))
            && !compared.iter().any(|id| self.varies_with_another(*id, &through))
            && !self.varies_beside(&values, &through)
            && compared.iter().all(|id| self.is_smooth(*id))
            && self.algebra.is_finite(cotangent);
        if !fits {
            return Ok(None);
        }
        let mut partials = vec![];
        for input in compared {
            let mut active = HashSet::from([input]);
            activate(self.algebra, &self.algebra.reachable(case), &[input], &mut active);
            let one = self.algebra.number(1.0)?;
            let mut local = Pullback {
                rules: self.rules,
                algebra: self.algebra,
                nulls: self.nulls,
                variables: &[input],
                tangents: vec![one],
                total: self.total,
                active,
                known: HashMap::new(),
                choices: HashSet::new(),
            };
            partials.push((input, local.derivative(case)?));
            // An infinite cotangent may come to them later.
            let choices = local.choices;
            self.choices.extend(choices);
        }
        Ok(Some(Contribution::Partials(partials)))
    }

    /// Whether the derivatives of a node are finite. Nothing is known of those that a rule of the user's gives.
    fn is_smooth(&self, root: NodeId) -> bool {
        self.algebra.is_smooth(root) && !self.algebra.reachable(root).into_iter().any(|id| self.has_rule_of_user(id))
    }

    /// Whether a choice lies between a node and the variables.
    fn chooses(&self, root: NodeId) -> bool {
        let varies = |id: &NodeId| self.active.contains(id) && !self.variables.contains(id);
        let chooses = |id: NodeId| self.algebra.node(id).is_choice() && !self.has_rule_of_user(id);
        self.algebra.reachable(root).into_iter().filter(varies).any(chooses)
    }

    fn has_rule_of_user(&self, id: NodeId) -> bool {
        match &self.algebra.node(id).shape {
            Expr::ScalarFunction(call) => self.rules.is_of_user(&call.func, call.args.len()),
            _ => false,
        }
    }

    /// Whether a node is computed from another of these.
    fn varies_with_another(&self, id: NodeId, nodes: &HashSet<NodeId>) -> bool {
        self.algebra.reachable(id).iter().any(|other| *other != id && nodes.contains(other))
    }

    /// Whether one of the values varies by another way than through these nodes.
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

    /// The product of a cotangent and the derivative of a `CASE`.
    ///
    /// A cotangent that can be infinite goes into the `CASE`, branch by branch, so that a branch that does not vary
    /// contributes nothing: `sqrt(greatest(x, 0))` has the derivative 0 at -1. Any other stays outside, where the
    /// derivatives of a query share it.
    #[recursive::recursive]
    pub(super) fn pulled_back(&mut self, cotangent: NodeId, partial: NodeId) -> Result<NodeId, Stopped> {
        if self.algebra.is_finite(cotangent) {
            return Ok(self.algebra.multiply(cotangent, partial)?);
        }
        for (op, sides) in [(Operator::Multiply, &[0, 1][..]), (Operator::Divide, &[0])] {
            let Some((a, b)) = self.algebra.as_binary(partial, op) else { continue };
            for side in sides {
                let (choice, other) = if *side == 0 { (a, b) } else { (b, a) };
                if self.is_of_choice(choice) {
                    let one = self.algebra.number(1.0)?;
                    let factor = if op == Operator::Multiply { other } else { self.algebra.divide(one, other)? };
                    // The factor may be another choice.
                    let cotangent = self.pulled_back(cotangent, factor)?;
                    return self.pulled_back(cotangent, choice);
                }
            }
        }
        let shape = match &self.algebra.node(partial).shape {
            Expr::Case(case) if self.choices.contains(&partial) => case.clone(),
            Expr::Negative(_) => {
                let choice = self.algebra.node(partial).children[0];
                let positive = self.pulled_back(cotangent, choice)?;
                return Ok(self.algebra.negate(positive)?);
            }
            _ => return Ok(self.algebra.multiply(cotangent, partial)?),
        };
        let mut children = self.algebra.node(partial).children.clone();
        for value in branches(&shape) {
            if !self.vanishes(children[value]) {
                let contribution = self.pulled_back(cotangent, children[value])?;
                children[value] = self.algebra.cast_to_working_type(contribution)?;
            }
        }
        let product = self.algebra.intern(Expr::Case(shape), children)?;
        self.nulls.equate(self.algebra, product, partial);
        self.choices.insert(product);
        Ok(product)
    }

    /// Whether a derivative is that of a choice, but for factors.
    #[recursive::recursive]
    fn is_of_choice(&self, id: NodeId) -> bool {
        let node = self.algebra.node(id);
        match (&node.shape, node.children.as_slice()) {
            (Expr::Negative(_), [choice]) => self.is_of_choice(*choice),
            (Expr::BinaryExpr(binary), [a, b]) => match binary.op {
                Operator::Multiply => self.is_of_choice(*a) || self.is_of_choice(*b),
                Operator::Divide => self.is_of_choice(*a),
                _ => false,
            },
            _ => self.choices.contains(&id),
        }
    }

    /// Whether a branch is 0, also if it is so only where it is not NULL.
    #[recursive::recursive]
    fn vanishes(&self, id: NodeId) -> bool {
        let node = self.algebra.node(id);
        match &node.shape {
            Expr::Case(case) => branches(case).into_iter().all(|value| self.vanishes(node.children[value])),
            Expr::Literal(scalar, _) => scalar.is_null() || self.algebra.is_zero(id),
            _ => false,
        }
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
    /// Adds what a condition compares.
    #[recursive::recursive]
    fn add(&mut self, algebra: &Algebra, condition: NodeId) {
        let node = algebra.node(condition);
        let Expr::BinaryExpr(binary) = &node.shape else { return };
        match binary.op {
            Operator::And | Operator::Or => node.children.iter().for_each(|child| self.add(algebra, *child)),
            Operator::Eq | Operator::NotEq | Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq => {
                for operand in node.children.iter().map(|operand| unconverted(algebra, *operand)) {
                    if !self.seen.insert(operand) {
                        continue;
                    }
                    if operand == self.output {
                        let inputs = algebra.node(operand).children.iter().map(|input| unconverted(algebra, *input));
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

/// The node without conversions around it.
fn unconverted(algebra: &Algebra, mut id: NodeId) -> NodeId {
    while let Expr::Cast(_) = &algebra.node(id).shape {
        id = algebra.node(id).children[0];
    }
    id
}
