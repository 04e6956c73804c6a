//! The sweep from the output of an expression to its variables.

use arrow::datatypes::DataType;
use datafusion_expr::{Expr, Operator};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::activity::activate;
use super::nulls::NullSets;
use super::refusal::{Refusal, Stopped};
use crate::algebra::Algebra;
use crate::graph::NodeId;
use crate::rules::{Bindings, Derivative, Rule, Rules, of_negation, of_operator};
use crate::vocabulary::types::{decoded, is_float};

/// The reverse sweep over one expression.
pub struct Pullback<'p, 'a> {
    pub(super) rules: &'p Rules,
    pub(super) algebra: &'p mut Algebra<'a>,
    pub(super) nulls: &'p mut NullSets<'a>,
    pub(super) variables: &'p [NodeId],
    /// The tangent of each variable.
    pub(super) tangents: Vec<NodeId>,
    /// Whether the variables are all that varies, each with its tangent.
    pub(super) total: bool,
    /// The nodes that vary with a variable.
    pub(super) active: HashSet<NodeId>,
    pub(super) known: HashMap<NodeId, NodeId>,
    /// The derivatives of `CASE` that are 0 in some branches.
    pub(super) choices: HashSet<NodeId>,
}

/// What a node contributes to the derivative.
pub(super) enum Contribution {
    /// The partial derivatives by its inputs, to which cotangents are carried on.
    Partials(Vec<(NodeId, NodeId)>),
    /// Its own derivative along the tangents.
    Derivative(NodeId),
}

impl<'p, 'a> Pullback<'p, 'a> {
    /// Prepares the sweep over the nodes of an expression, children first, for the given variables with their tangents,
    /// 1 where none is given.
    pub fn new(
        rules: &'p Rules,
        algebra: &'p mut Algebra<'a>,
        nulls: &'p mut NullSets<'a>,
        primal: &[NodeId],
        variables: &'p [NodeId],
        tangents: &[Option<NodeId>],
        total: bool,
    ) -> Result<Self, Stopped> {
        let mut active = variables.iter().copied().collect();
        activate(algebra, primal, variables, &mut active);
        check_used(rules, algebra, primal, &active)?;
        // In single precision only if the whole chain is.
        let single = primal
            .iter()
            .filter(|id| active.contains(id))
            .chain(variables)
            .all(|id| decoded(algebra.data_type(*id)) == &DataType::Float32);
        algebra.start_derivative(if single { DataType::Float32 } else { DataType::Float64 });
        let one = algebra.number(1.0)?;
        let tangents = tangents.iter().map(|tangent| tangent.unwrap_or(one)).collect();
        Ok(Self {
            rules,
            algebra,
            nulls,
            variables,
            tangents,
            total,
            active,
            known: HashMap::new(),
            choices: HashSet::new(),
        })
    }

    /// The derivative of a node along the tangents: the sum over the variables of tangent times partial derivative.
    #[recursive::recursive]
    pub fn derivative(&mut self, root: NodeId) -> Result<NodeId, Stopped> {
        if let Some(derivative) = self.known.get(&root) {
            return Ok(*derivative);
        }
        let mut contributions = HashMap::from([(root, vec![self.algebra.number(1.0)?])]);
        let mut others = vec![];
        for id in self.algebra.reachable(root).into_iter().rev() {
            if !self.active.contains(&id) || self.variables.contains(&id) {
                continue;
            }
            let Some(summands) = contributions.remove(&id) else { continue };
            let cotangent = self.algebra.add_all(&summands)?;
            match self.contribution(id, cotangent)? {
                Contribution::Derivative(derivative) => others.push(self.pulled_back(cotangent, derivative)?),
                Contribution::Partials(partials) => {
                    for (input, partial) in partials {
                        let contribution = self.algebra.multiply(cotangent, partial)?;
                        contributions.entry(input).or_default().push(contribution);
                    }
                }
            }
        }
        let mut terms = vec![];
        for (variable, tangent) in self.variables.iter().zip(&self.tangents) {
            if let Some(summands) = contributions.get(variable) {
                let cotangent = self.algebra.add_all(summands)?;
                // Behind the cotangent, which derivatives by other variables have too, stands what is of this one alone.
                let factors = if self.total { [cotangent, *tangent] } else { [*tangent, cotangent] };
                terms.push(self.algebra.multiply(factors[0], factors[1])?);
            }
        }
        terms.extend(others);
        let derivative = self.algebra.add_all(&terms)?;
        self.known.insert(root, derivative);
        Ok(derivative)
    }

    /// The partial derivatives of a node by what it directly depends on, or its derivative as a whole.
    fn contribution(&mut self, id: NodeId, cotangent: NodeId) -> Result<Contribution, Stopped> {
        if self.algebra.data_type(id).is_decimal() {
            return Err(Refusal::Decimal(id).into());
        }
        if let Some(partials) = self.difference_of_squares(id)? {
            return Ok(partials);
        }
        if let Some((base, exponent)) = self.algebra.as_lowered(id) {
            let factor = self.algebra.number(exponent)?;
            let power = self.algebra.power(base, exponent - 1.0)?;
            return Ok(Contribution::Partials(vec![(base, self.algebra.multiply(factor, power)?)]));
        }
        let children = self.algebra.node(id).children.clone();
        let rule = match &self.algebra.node(id).shape {
            Expr::Case(case) => {
                let case = case.clone();
                return match self.by_compared(id, id, cotangent)? {
                    Some(partials) => Ok(partials),
                    None => self.case(id, &case, &children),
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
            Expr::BinaryExpr(binary) => of_operator(binary.op)?,
            Expr::Negative(_) => of_negation()?,
            Expr::ScalarFunction(call) => self.rules.of_function(&call.func, children.len())?,
            _ => None,
        };
        match rule {
            Some(rule) => self.by_rule(id, &rule, &children, cotangent),
            None => Err(Refusal::NoRule(id).into()),
        }
    }

    /// The partial derivative of `(c - u) * (c + u)`, and of `(u - c) * (u + c)`, by `u`. Factor by factor it would be the
    /// difference of two numbers that are close to each other where `u` is small.
    fn difference_of_squares(&mut self, id: NodeId) -> Result<Option<Contribution>, Stopped> {
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
        Ok(Some(Contribution::Partials(vec![(u, self.algebra.multiply(slope, u)?)])))
    }

    fn by_rule(
        &mut self,
        id: NodeId,
        rule: &Rule,
        inputs: &[NodeId],
        cotangent: NodeId,
    ) -> Result<Contribution, Stopped> {
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
                if let Some(partials) = self.by_compared(case, id, cotangent)? {
                    return Ok(partials);
                }
                activate(self.algebra, &self.algebra.reachable(case), self.variables, &mut self.active);
                self.derivative(case).map(Contribution::Derivative)
            }
        }
    }
}

/// The refusal of a rule of the user's that could not be used, because its function gives no floats.
fn check_used(rules: &Rules, algebra: &Algebra, primal: &[NodeId], active: &HashSet<NodeId>) -> Result<(), Refusal> {
    let unused = primal.iter().find(|id| {
        let node = algebra.node(**id);
        matches!(&node.shape, Expr::ScalarFunction(call) if rules.is_of_user(&call.func, node.children.len()))
            && !is_float(node.field.data_type())
            && node.children.iter().any(|child| active.contains(child))
    });
    unused.map_or(Ok(()), |id| Err(Refusal::UnusedRule(*id)))
}

/// The refusal of an argument that varies but is no number: a partial derivative by a list says nothing.
fn check_number(rule: &Rule, algebra: &Algebra, input: NodeId) -> Result<(), Refusal> {
    let data_type = algebra.data_type(input);
    if !is_float(data_type) && !data_type.is_decimal() {
        return Err(Refusal::NoNumber { input, function: rule.name.clone() });
    }
    Ok(())
}
