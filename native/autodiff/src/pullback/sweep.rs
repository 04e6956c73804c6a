//! The reverse sweep from the output of an expression to its variables.
//!
//! Nodes are visited in reverse topological order. Each adds its cotangent times a partial derivative to the cotangents of its inputs, so
//! when a node is visited its cotangent is complete (A. Griewank and A. Walther, "Evaluating Derivatives", 2nd edition, SIAM 2008, chapter
//! 3). The cost is a small multiple of the expression's, however many variables there are.
//!
//! For `x * sin(x)` the output has the cotangent 1, `sin(x)` gets `x`, and `x` gets `sin(x)` from the product and `x * cos(x)` from
//! `sin(x)`.

use arrow::datatypes::DataType;
use datafusion_expr::{Expr, Operator};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::activity::activate;
use super::choices::Choices;
use super::comparison::VaryingContext;
use super::nulls::NullSets;
use super::refusal::{PullbackError, Refusal};
use crate::algebra::{Algebra, add_all, as_written_power, multiply, power};
use crate::graph::{NodeId, branches};
use crate::rules::{Bindings, Derivative, Rule, Rules, negation_rule, operator_rule};
use crate::vocabulary::types::{is_float, value_type};

/// The variables of a derivative, with tangents.
#[derive(Debug, Clone, Copy)]
pub struct Direction<'p> {
    /// The nodes that vary.
    pub variables: &'p [NodeId],
    /// The tangent of each, 1 if it is `None`.
    pub tangents: &'p [Option<NodeId>],
    /// Whether the variables are all that varies, each with its tangent.
    pub seeds_complete: bool,
}

/// The reverse sweep over one expression.
pub struct Pullback<'p, 'a> {
    rules: &'p Rules,
    algebra: &'p mut Algebra<'a>,
    nulls: &'p mut NullSets<'a>,
    variables: &'p [NodeId],
    tangents: Vec<NodeId>,
    seeds_complete: bool,
    /// The nodes that vary with a variable.
    active: HashSet<NodeId>,
    derivatives: HashMap<NodeId, NodeId>,
    choices: Choices,
}

/// The contribution of a node to the derivative.
enum Contribution {
    /// The partial derivatives by its inputs, with which cotangents are propagated.
    Partials(Vec<(NodeId, NodeId)>),
    /// Its own derivative along the tangents.
    Derivative(NodeId),
}

impl<'p, 'a> Pullback<'p, 'a> {
    /// Prepares the sweep over the nodes of an expression, children first.
    pub fn new(
        rules: &'p Rules,
        algebra: &'p mut Algebra<'a>,
        nulls: &'p mut NullSets<'a>,
        primal: &[NodeId],
        direction: Direction<'p>,
    ) -> Result<Self, PullbackError> {
        let Direction { variables, tangents, seeds_complete } = direction;
        let mut active = variables.iter().copied().collect();
        activate(algebra, primal, variables, &mut active);
        check_rules_used(rules, algebra, primal, &active)?;
        // Single precision only if the whole chain is.
        let single = primal
            .iter()
            .filter(|id| active.contains(id))
            .chain(variables)
            .all(|id| value_type(algebra.data_type(*id)) == &DataType::Float32);
        algebra.start_derivative(if single { DataType::Float32 } else { DataType::Float64 });
        let one = algebra.number(1.0)?;
        let tangents: Vec<_> = tangents.iter().map(|tangent| tangent.unwrap_or(one)).collect();
        let mut choices = Choices::default();
        for tangent in tangents.iter().filter(|_| seeds_complete) {
            choices.add_tangent(algebra, *tangent);
        }
        Ok(Self {
            rules,
            algebra,
            nulls,
            variables,
            tangents,
            seeds_complete,
            active,
            derivatives: HashMap::new(),
            choices,
        })
    }

    /// Returns the derivative of a node along the tangents: the sum over the variables of tangent times partial derivative.
    #[recursive::recursive]
    pub fn pull_back(&mut self, root: NodeId) -> Result<NodeId, PullbackError> {
        if let Some(derivative) = self.derivatives.get(&root).filter(|_| self.choices.is_inside()) {
            return Ok(*derivative);
        }
        let mut contributions = HashMap::from([(root, vec![self.algebra.number(1.0)?])]);
        let mut others = vec![];
        for id in self.algebra.reachable(root).into_iter().rev() {
            if !self.active.contains(&id) || self.variables.contains(&id) {
                continue;
            }
            let Some(summands) = contributions.remove(&id) else { continue };
            let cotangent = add_all(self.algebra, &summands)?;
            match self.contribute(id, cotangent)? {
                Contribution::Derivative(derivative) => {
                    others.push(self.choices.pull_back(self.algebra, self.nulls, cotangent, derivative)?)
                }
                Contribution::Partials(partials) => {
                    for (input, partial) in partials {
                        let contribution = multiply(self.algebra, cotangent, partial)?;
                        contributions.entry(input).or_default().push(contribution);
                    }
                }
            }
        }
        let mut terms = vec![];
        for (variable, tangent) in self.variables.iter().zip(&self.tangents) {
            if let Some(summands) = contributions.get(variable) {
                let cotangent = add_all(self.algebra, summands)?;
                // The cotangent, which derivatives by other variables share, comes before the factor of this variable.
                let factors = if self.seeds_complete { [cotangent, *tangent] } else { [*tangent, cotangent] };
                terms.push(self.choices.multiply_tangent(self.algebra, self.nulls, factors)?);
            }
        }
        terms.extend(others);
        let derivative = add_all(self.algebra, &terms)?;
        if self.choices.is_inside() {
            self.derivatives.insert(root, derivative);
        }
        Ok(derivative)
    }

    /// Differentiates a branch of a choice, or the choice that a function is.
    fn pull_back_inside(&mut self, root: NodeId) -> Result<NodeId, PullbackError> {
        self.choices.enter();
        let derivative = self.pull_back(root);
        self.choices.leave();
        derivative
    }

    /// Returns the partial derivatives of a node by its inputs, or its derivative as a whole.
    fn contribute(&mut self, id: NodeId, cotangent: NodeId) -> Result<Contribution, PullbackError> {
        if self.algebra.data_type(id).is_decimal() {
            return Err(Refusal::Decimal(id).into());
        }
        if let Some(partials) = self.difference_of_squares(id)? {
            return Ok(partials);
        }
        if let Some((base, exponent)) = as_written_power(self.algebra, id) {
            let factor = self.algebra.number(exponent)?;
            let lower = power(self.algebra, base, exponent - 1.0)?;
            return Ok(Contribution::Partials(vec![(base, multiply(self.algebra, factor, lower)?)]));
        }
        let children = self.algebra.node(id).children.clone();
        let rule = match &self.algebra.node(id).shape {
            Expr::Case(_) => {
                return match self.apply_comparison(id, id, cotangent)? {
                    Some(partials) => Ok(partials),
                    None => self.pull_back_case(id),
                };
            }
            Expr::Cast(_) | Expr::TryCast(_) => {
                let converted = children[0];
                return match self.algebra.data_type(converted) {
                    float if is_float(float) => {
                        Ok(Contribution::Partials(vec![(converted, self.algebra.number(1.0)?)]))
                    }
                    decimal if decimal.is_decimal() => Err(Refusal::Decimal(converted).into()),
                    _ => Err(Refusal::NoRule(converted).into()),
                };
            }
            Expr::BinaryExpr(binary) => operator_rule(binary.op)?,
            Expr::Negative(_) => negation_rule()?,
            Expr::ScalarFunction(call) => self.rules.find(&call.func, children.len())?,
            _ => None,
        };
        match rule {
            Some(rule) => self.apply_rule(id, &rule, &children, cotangent),
            None => Err(Refusal::NoRule(id).into()),
        }
    }

    /// Returns the partial derivative of `(c - u) * (c + u)`, and of `(u - c) * (u + c)`, by `u`. Factor by factor it would be the
    /// difference of two numbers that are close to each other where `u` is small.
    fn difference_of_squares(&mut self, id: NodeId) -> Result<Option<Contribution>, PullbackError> {
        let Some((difference, sum)) = self.algebra.as_binary(id, Operator::Multiply) else { return Ok(None) };
        let factors =
            (self.algebra.as_binary(difference, Operator::Minus), self.algebra.as_binary(sum, Operator::Plus));
        let (Some((a, b)), Some((c, d))) = factors else { return Ok(None) };
        let (u, slope) = match (self.active.contains(&a), self.active.contains(&b)) {
            (false, true) => (b, -2.0),
            (true, false) => (a, 2.0),
            _ => return Ok(None),
        };
        if (a, b) != (c, d) && (a, b) != (d, c) {
            return Ok(None);
        }
        let slope = self.algebra.number(slope)?;
        Ok(Some(Contribution::Partials(vec![(u, multiply(self.algebra, slope, u)?)])))
    }

    /// Differentiates a CASE branch by branch under the same conditions, tangents included.
    fn pull_back_case(&mut self, id: NodeId) -> Result<Contribution, PullbackError> {
        let Expr::Case(case) = &self.algebra.node(id).shape else { return Err(Refusal::NoRule(id).into()) };
        let children = &self.algebra.node(id).children;
        let values: Vec<_> = branches(case).into_iter().map(|value| children[value]).collect();
        let derivatives = values.into_iter().map(|value| self.pull_back_inside(value)).collect::<Result<_, _>>()?;
        Ok(match self.choices.differentiate_case(self.algebra, self.nulls, id, derivatives)? {
            Some(derivative) => Contribution::Derivative(derivative),
            None => Contribution::Partials(vec![]),
        })
    }

    /// Differentiates a `CASE` through what its conditions compare, if all that varies enters through that.
    fn apply_comparison(
        &mut self,
        case: NodeId,
        output: NodeId,
        cotangent: NodeId,
    ) -> Result<Option<Contribution>, PullbackError> {
        let varying = VaryingContext {
            rules: self.rules,
            algebra: self.algebra,
            active: &self.active,
            variables: self.variables,
        };
        let Some(compared) = varying.find_compared(self.nulls, case, output, cotangent) else { return Ok(None) };
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
                seeds_complete: self.seeds_complete,
                active,
                derivatives: HashMap::new(),
                choices: Choices::default(),
            };
            partials.push((input, local.pull_back(case)?));
            // They may be multiplied by an infinite cotangent later.
            let choices = local.choices;
            self.choices.extend(choices);
        }
        Ok(Some(Contribution::Partials(partials)))
    }

    fn apply_rule(
        &mut self,
        id: NodeId,
        rule: &Rule,
        inputs: &[NodeId],
        cotangent: NodeId,
    ) -> Result<Contribution, PullbackError> {
        let function = match &self.algebra.node(id).shape {
            Expr::ScalarFunction(call) => Some(Arc::clone(&call.func)),
            _ => None,
        };
        let mut bindings = Bindings { rule, function: function.as_ref(), inputs, output: id };
        match &rule.derivative {
            Derivative::Partials(formulas) => {
                let mut partials = vec![];
                for (input, formula) in inputs.iter().zip(formulas) {
                    if self.active.contains(input) {
                        check_number(rule, self.algebra, *input)?;
                        let partial = formula
                            .evaluate(self.algebra, &mut bindings)
                            .map_err(|reason| Refusal::Formula { function: rule.name.clone(), reason })?;
                        partials.push((*input, partial));
                    }
                }
                Ok(Contribution::Partials(partials))
            }
            Derivative::Choice(case) => {
                let case = case.evaluate(self.algebra, &mut bindings)?;
                if let Some(partials) = self.apply_comparison(case, id, cotangent)? {
                    return Ok(partials);
                }
                activate(self.algebra, &self.algebra.reachable(case), self.variables, &mut self.active);
                self.pull_back_inside(case).map(Contribution::Derivative)
            }
        }
    }
}

/// Refuses a user rule that could not be used because its function returns no floats.
fn check_rules_used(
    rules: &Rules,
    algebra: &Algebra,
    primal: &[NodeId],
    active: &HashSet<NodeId>,
) -> Result<(), Refusal> {
    let unused = primal.iter().find(|id| {
        let node = algebra.node(**id);
        matches!(&node.shape, Expr::ScalarFunction(call) if rules.has_user_rule(&call.func, node.children.len()))
            && !is_float(node.field.data_type())
            && node.children.iter().any(|child| active.contains(child))
    });
    unused.map_or(Ok(()), |id| Err(Refusal::UnusedRule(*id)))
}

/// Refuses a varying argument that is no number: a partial derivative by a list has no meaning.
fn check_number(rule: &Rule, algebra: &Algebra, input: NodeId) -> Result<(), Refusal> {
    let data_type = algebra.data_type(input);
    if !is_float(data_type) && !data_type.is_decimal() {
        return Err(Refusal::NoNumber { input, function: rule.name.clone() });
    }
    Ok(())
}
