//! Expressions that choose among values: `CASE`, and functions such as `greatest` whose rule is one.
//!
//! A branch that is not taken contributes nothing, even where its derivative is infinite or NaN.

use datafusion_common::Result;
use datafusion_expr::{Case, Expr, Operator};
use std::collections::{HashMap, HashSet};

use super::{Contribution, Pullback, activate};
use crate::dag::{Dag, NodeId, branches};

impl Pullback<'_, '_> {
    /// CASE is differentiated branch by branch under the same conditions, tangents included, so that what a branch not
    /// taken would compute never enters.
    pub(super) fn case(&mut self, id: NodeId, case: &Case, children: &[NodeId]) -> Result<Contribution> {
        let first = usize::from(case.expr.is_some());
        let values = branches(case);
        let derivatives = values.iter().map(|value| self.derivative(children[*value])).collect::<Result<Vec<_>>>()?;
        if derivatives.iter().all(|derivative| self.dag.is_zero(*derivative)) {
            return Ok(Contribution::Partials(vec![]));
        }
        let mut parts = children.to_vec();
        for (value, derivative) in values.iter().zip(derivatives) {
            let mut required = self.nulls.of(self.dag, children[*value])?;
            // WHEN x > 0 THEN ...: the condition has seen to it that x is not NULL.
            if first == 0 && (*value - first) % 2 == 1 {
                let seen_to = self.nulls.ruled_out_by(self.dag, children[*value - 1])?;
                required.retain(|source| !seen_to.contains(source));
            }
            let exact = self.nulls.guard(self.dag, derivative, &required, None)?;
            if self.selections.contains(&derivative) {
                self.selections.insert(exact);
            }
            parts[*value] = self.dag.cast_to_working_type(exact)?;
        }
        let selects = values
            .iter()
            .map(|value| parts[*value])
            .any(|branch| self.vanishes(branch) || self.selections.contains(&branch));
        let derivative = self.dag.intern(Expr::Case(case.clone()), parts)?;
        self.nulls.equate(self.dag, derivative, id)?;
        if selects {
            self.selections.insert(derivative);
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
    ) -> Result<Option<Contribution>> {
        let Expr::Case(shape) = &self.dag.node(case).shape else { return Ok(None) };
        let children = &self.dag.node(case).children;
        let mut compared = vec![];
        if shape.expr.is_none() {
            for condition in (0..shape.when_then_expr.len()).map(|i| children[2 * i]) {
                operands(self.dag, condition, output, &mut compared);
            }
        }
        let below = self.dag.reachable(output);
        compared.retain(|id| self.active.contains(id) && *id != output && below.contains(id));
        let values: Vec<_> = branches(shape).into_iter().map(|value| children[value]).collect();
        // Nor may it be NULL where the choice is not.
        let sources = self.nulls.of(self.dag, output)?;
        for id in &compared {
            if !self.nulls.of(self.dag, *id)?.is_subset(&sources) {
                return Ok(None);
            }
        }
        let fits = compared.iter().any(|id| self.chooses(*id))
            && !compared.iter().any(|id| self.varies_with_another(*id, &compared))
            && !self.varies_beside(&values, &compared)
            && compared.iter().all(|id| self.dag.is_smooth(*id))
            && self.dag.is_finite(cotangent);
        if !fits {
            return Ok(None);
        }
        let mut partials = vec![];
        for input in compared {
            let mut active = HashSet::from([input]);
            activate(self.dag, &self.dag.reachable(case), &[input], &mut active);
            let one = self.dag.number(1.0)?;
            let mut local = Pullback {
                call: self.call,
                rules: self.rules,
                dag: self.dag,
                nulls: self.nulls,
                variables: &[input],
                tangents: vec![one],
                active,
                known: HashMap::new(),
                selections: HashSet::new(),
            };
            partials.push((input, local.derivative(case)?));
        }
        Ok(Some(Contribution::Partials(partials)))
    }

    /// Whether a choice lies between a node and the variables.
    fn chooses(&self, root: NodeId) -> bool {
        let varies = |id: &NodeId| self.active.contains(id) && !self.variables.contains(id);
        self.dag.reachable(root).into_iter().filter(varies).any(|id| match &self.dag.node(id).shape {
            Expr::Case(_) => true,
            Expr::ScalarFunction(call) => matches!(call.func.name(), "greatest" | "least"),
            _ => false,
        })
    }

    /// Whether a node is computed from another of these.
    fn varies_with_another(&self, id: NodeId, nodes: &[NodeId]) -> bool {
        self.dag.reachable(id).iter().any(|other| *other != id && nodes.contains(other))
    }

    /// Whether one of the values varies by another way than through these nodes.
    fn varies_beside(&self, values: &[NodeId], through: &[NodeId]) -> bool {
        let mut open = values.to_vec();
        let mut seen = HashSet::new();
        while let Some(id) = open.pop() {
            if self.variables.contains(&id) && !through.contains(&id) {
                return true;
            }
            if self.active.contains(&id) && !through.contains(&id) && seen.insert(id) {
                open.extend(&self.dag.node(id).children);
            }
        }
        false
    }

    /// The product of a cotangent and the derivative of a `CASE`.
    ///
    /// A cotangent that can be infinite goes into the `CASE`, branch by branch, so that a branch that does not vary
    /// contributes nothing: `sqrt(greatest(x, 0))` has the derivative 0 at -1. Any other stays outside, where the
    /// derivatives of a query share it.
    pub(super) fn pulled_back(&mut self, cotangent: NodeId, partial: NodeId) -> Result<NodeId> {
        if self.dag.is_finite(cotangent) {
            return self.dag.multiply(cotangent, partial);
        }
        for (op, sides) in [(Operator::Multiply, &[0, 1][..]), (Operator::Divide, &[0])] {
            let Some((a, b)) = self.dag.as_binary(partial, op) else { continue };
            for side in sides {
                let (choice, other) = if *side == 0 { (a, b) } else { (b, a) };
                if self.selects(choice) {
                    let one = self.dag.number(1.0)?;
                    let factor = if op == Operator::Multiply { other } else { self.dag.divide(one, other)? };
                    let cotangent = self.dag.multiply(cotangent, factor)?;
                    return self.pulled_back(cotangent, choice);
                }
            }
        }
        let shape = match &self.dag.node(partial).shape {
            Expr::Case(case) if self.selections.contains(&partial) => case.clone(),
            Expr::Negative(_) => {
                let choice = self.dag.node(partial).children[0];
                let positive = self.pulled_back(cotangent, choice)?;
                return self.dag.negate(positive);
            }
            _ => return self.dag.multiply(cotangent, partial),
        };
        let mut children = self.dag.node(partial).children.clone();
        for value in branches(&shape) {
            if !self.vanishes(children[value]) {
                let contribution = self.pulled_back(cotangent, children[value])?;
                children[value] = self.dag.cast_to_working_type(contribution)?;
            }
        }
        let product = self.dag.intern(Expr::Case(shape), children)?;
        self.nulls.equate(self.dag, product, partial)?;
        self.selections.insert(product);
        Ok(product)
    }

    /// Whether a derivative is that of a choice, but for factors.
    fn selects(&self, id: NodeId) -> bool {
        let node = self.dag.node(id);
        match (&node.shape, node.children.as_slice()) {
            (Expr::Negative(_), [choice]) => self.selects(*choice),
            (Expr::BinaryExpr(binary), [a, b]) => match binary.op {
                Operator::Multiply => self.selects(*a) || self.selects(*b),
                Operator::Divide => self.selects(*a),
                _ => false,
            },
            _ => self.selections.contains(&id),
        }
    }

    /// Whether a branch is 0, also if it is so only where it is not NULL.
    fn vanishes(&self, id: NodeId) -> bool {
        let node = self.dag.node(id);
        match &node.shape {
            Expr::Case(case) => branches(case).into_iter().all(|value| self.vanishes(node.children[value])),
            Expr::Literal(scalar, _) => scalar.is_null() || self.dag.is_zero(id),
            _ => false,
        }
    }
}

/// Adds what a condition compares. To be compared with the output of a choice is to be compared with its inputs.
fn operands(dag: &Dag, condition: NodeId, output: NodeId, compared: &mut Vec<NodeId>) {
    let node = dag.node(condition);
    let Expr::BinaryExpr(binary) = &node.shape else { return };
    match binary.op {
        Operator::And | Operator::Or => node.children.iter().for_each(|child| operands(dag, *child, output, compared)),
        Operator::Eq | Operator::NotEq | Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq => {
            for operand in &node.children {
                let operand = unconverted(dag, *operand);
                let inputs = if operand == output { &dag.node(output).children } else { &vec![operand] };
                for input in inputs.iter().map(|input| unconverted(dag, *input)) {
                    if !compared.contains(&input) {
                        compared.push(input);
                    }
                }
            }
        }
        _ => {}
    }
}

/// The node without conversions around it.
fn unconverted(dag: &Dag, id: NodeId) -> NodeId {
    match &dag.node(id).shape {
        Expr::Cast(_) => unconverted(dag, dag.node(id).children[0]),
        _ => id,
    }
}
