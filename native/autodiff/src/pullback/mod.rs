//! Reverse mode: cotangents carried from the output of an expression to the variables, where they meet the tangents.

mod selection;

use arrow::datatypes::DataType;
use datafusion_common::{Result, plan_datafusion_err, plan_err};
use datafusion_expr::{Expr, Operator};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::applicability::{check_number, check_used, missing_rule};
use crate::call::{Call, SEE_ALL_NODES};
use crate::dag::{Dag, NodeId};
use crate::nulls::NullSets;
use crate::rules::{self, Bindings, Derivative, Rule, Rules};
use crate::vocabulary::messages::{abbreviated, cut, message_of};
use crate::vocabulary::types::{can_vary, decoded, is_float};

/// The reverse sweep over one expression.
pub struct Pullback<'p, 'a> {
    call: &'p Call<'p>,
    rules: &'p Rules,
    dag: &'p mut Dag<'a>,
    nulls: &'p mut NullSets<'a>,
    variables: &'p [NodeId],
    /// The tangent of each variable.
    tangents: Vec<NodeId>,
    /// The nodes that vary with a variable.
    active: HashSet<NodeId>,
    known: HashMap<NodeId, NodeId>,
    /// The derivatives of `CASE` that are 0 in some branches.
    selections: HashSet<NodeId>,
}

/// What a node contributes to the derivative.
enum Contribution {
    /// The partial derivatives by its inputs, to which cotangents are carried on.
    Partials(Vec<(NodeId, NodeId)>),
    /// Its own derivative along the tangents.
    Derivative(NodeId),
}

impl<'p, 'a> Pullback<'p, 'a> {
    /// Prepares the sweep over the nodes of an expression, children first, for the given variables with their tangents,
    /// 1 where none is given.
    pub fn new(
        call: &'p Call<'p>,
        rules: &'p Rules,
        dag: &'p mut Dag<'a>,
        nulls: &'p mut NullSets<'a>,
        primal: &[NodeId],
        variables: &'p [NodeId],
        tangents: &[Option<NodeId>],
    ) -> Result<Self> {
        let mut active = variables.iter().copied().collect();
        activate(dag, primal, variables, &mut active);
        check_used(call, rules, dag, primal, &active)?;
        // In single precision only if the whole chain is.
        let single = primal
            .iter()
            .filter(|id| active.contains(id))
            .chain(variables)
            .all(|id| decoded(dag.data_type(*id)) == &DataType::Float32);
        dag.start_derivative(if single { DataType::Float32 } else { DataType::Float64 });
        let one = dag.number(1.0)?;
        let tangents = tangents.iter().map(|tangent| tangent.unwrap_or(one)).collect();
        Ok(Self {
            call,
            rules,
            dag,
            nulls,
            variables,
            tangents,
            active,
            known: HashMap::new(),
            selections: HashSet::new(),
        })
    }

    /// The derivative of a node along the tangents: the sum over the variables of tangent times partial derivative.
    #[recursive::recursive]
    pub fn derivative(&mut self, root: NodeId) -> Result<NodeId> {
        if let Some(derivative) = self.known.get(&root) {
            return Ok(*derivative);
        }
        let mut cotangents = HashMap::from([(root, self.dag.number(1.0)?)]);
        let mut others = vec![];
        for id in self.dag.reachable(root).into_iter().rev() {
            if !self.active.contains(&id) || self.variables.contains(&id) {
                continue;
            }
            let Some(cotangent) = cotangents.get(&id).copied() else { continue };
            match self.contribution(id, cotangent)? {
                Contribution::Derivative(derivative) => others.push(self.pulled_back(cotangent, derivative)?),
                Contribution::Partials(partials) => {
                    for (input, partial) in partials {
                        let contribution = self.dag.multiply(cotangent, partial)?;
                        let sum = match cotangents.get(&input) {
                            Some(others) => self.dag.add(*others, contribution)?,
                            None => contribution,
                        };
                        cotangents.insert(input, sum);
                    }
                }
            }
        }
        let mut derivative = self.dag.number(0.0)?;
        for (variable, tangent) in self.variables.iter().zip(&self.tangents) {
            if let Some(cotangent) = cotangents.get(variable) {
                // Behind the cotangent, which derivatives by other variables have too, stands what is of this one alone.
                let factors = if self.call.total { [*cotangent, *tangent] } else { [*tangent, *cotangent] };
                let term = self.dag.multiply(factors[0], factors[1])?;
                derivative = self.dag.add(derivative, term)?;
            }
        }
        for term in others {
            derivative = self.dag.add(derivative, term)?;
        }
        self.known.insert(root, derivative);
        Ok(derivative)
    }

    /// The partial derivatives of a node by what it directly depends on, or its derivative as a whole.
    fn contribution(&mut self, id: NodeId, cotangent: NodeId) -> Result<Contribution> {
        if self.dag.data_type(id).is_decimal() {
            return self.decimal(id);
        }
        if let Some(partials) = self.difference_of_squares(id)? {
            return Ok(partials);
        }
        let children = self.dag.node(id).children.clone();
        let rule = match &self.dag.node(id).shape {
            Expr::Case(case) => {
                let case = case.clone();
                return match self.by_compared(id, id, cotangent)? {
                    Some(partials) => Ok(partials),
                    None => self.case(id, &case, &children),
                };
            }
            Expr::Cast(_) | Expr::TryCast(_) => {
                let converted = children[0];
                return match self.dag.data_type(converted) {
                    float if is_float(float) => Ok(Contribution::Partials(vec![(converted, self.dag.number(1.0)?)])),
                    decimal if decimal.is_decimal() => self.decimal(converted),
                    _ => self.no_rule(converted),
                };
            }
            Expr::BinaryExpr(binary) => rules::of_operator(binary.op)?,
            Expr::Negative(_) => rules::of_negation()?,
            Expr::ScalarFunction(call) => self.rules.of_function(&call.func, children.len())?,
            _ => None,
        };
        match rule {
            Some(rule) => self.by_rule(id, &rule, &children, cotangent),
            None => self.no_rule(id),
        }
    }

    /// The partial derivative of `(c - u) * (c + u)`, and of `(u - c) * (u + c)`, by `u`. Factor by factor it would be the
    /// difference of two numbers that are close to each other where `u` is small.
    fn difference_of_squares(&mut self, id: NodeId) -> Result<Option<Contribution>> {
        let Some((difference, sum)) = self.dag.as_binary(id, Operator::Multiply) else { return Ok(None) };
        let factors = (self.dag.as_binary(difference, Operator::Minus), self.dag.as_binary(sum, Operator::Plus));
        let (Some((a, b)), Some((c, d))) = factors else { return Ok(None) };
        let (u, slope) = match (self.active.contains(&a), self.active.contains(&b)) {
            (false, true) => (b, -2.0),
            (true, false) => (a, 2.0),
            _ => return Ok(None),
        };
        if (a, b) != (c, d) && (a, b) != (d, c) {
            return Ok(None);
        }
        let slope = self.dag.number(slope)?;
        Ok(Some(Contribution::Partials(vec![(u, self.dag.multiply(slope, u)?)])))
    }

    fn by_rule(&mut self, id: NodeId, rule: &Rule, inputs: &[NodeId], cotangent: NodeId) -> Result<Contribution> {
        let function = match &self.dag.node(id).shape {
            Expr::ScalarFunction(call) => Some(Arc::clone(&call.func)),
            _ => None,
        };
        let bindings = Bindings { rule, function: function.as_ref(), inputs, output: id };
        match &rule.derivative {
            Derivative::Partials(formulas) => {
                let mut partials = vec![];
                for (input, formula) in inputs.iter().zip(formulas) {
                    if self.active.contains(input) {
                        check_number(self.call, rule, self.dag, *input)?;
                        let partial = formula.evaluate(self.dag, &bindings).map_err(|error| {
                            plan_datafusion_err!("{}: the rule for {}: {}", self.call, rule.name, message_of(error))
                        })?;
                        partials.push((*input, partial));
                    }
                }
                Ok(Contribution::Partials(partials))
            }
            Derivative::Selection(case) => {
                let case = case.evaluate(self.dag, &bindings)?;
                if let Some(partials) = self.by_compared(case, id, cotangent)? {
                    return Ok(partials);
                }
                activate(self.dag, &self.dag.reachable(case), self.variables, &mut self.active);
                self.derivative(case).map(Contribution::Derivative)
            }
        }
    }

    fn decimal<T>(&self, id: NodeId) -> Result<T> {
        plan_err!(
            "{}: {} varies with a float but is {}, and {}",
            self.call,
            abbreviated(&self.dag.export(id)?),
            self.dag.data_type(id),
            rules::DECIMAL
        )
    }

    fn no_rule<T>(&self, id: NodeId) -> Result<T> {
        let expr = self.dag.export(id)?;
        let function = match &expr {
            Expr::ScalarFunction(call) => Some(call.func.name()),
            Expr::HigherOrderFunction(call) => Some(call.func.name()),
            _ => None,
        };
        let what = match (&expr, function) {
            (_, Some(name)) => format!("the function {}", cut(name)),
            (Expr::BinaryExpr(binary), _) => format!("the operator {}", binary.op),
            (Expr::ScalarSubquery(_), _) => "a subquery that reads the variable".to_owned(),
            (Expr::Cast(_) | Expr::TryCast(_), _) => format!("a conversion to {}", self.dag.data_type(id)),
            (other, _) => other.variant_name().to_owned(),
        };
        let why = match function.and_then(rules::refusal_of) {
            Some(reason) => format!("{what} is not differentiated: {reason}"),
            // An aggregate, as another library shows it and as it is, in a session without the rule for relations.
            None if matches!(expr, Expr::AggregateFunction(_)) || function.is_some_and(|name| name.contains('(')) => {
                format!("one node of a plan does not tell how. {SEE_ALL_NODES}")
            }
            None => {
                let give_it = match &expr {
                    Expr::ScalarFunction(call) => missing_rule(call),
                    _ => None,
                };
                let give_it = give_it.map_or("W".to_owned(), |rule| format!("Give it a rule, {rule}. Or w"));
                format!("no derivative is known for {what}. {give_it}rite it with functions that have one")
            }
        };
        let columns: Vec<_> = self.call.directions.iter().map(|direction| abbreviated(direction.column)).collect();
        plan_err!("{}: {} varies with {}, and {why}", self.call, abbreviated(&expr), cut(columns.join(", ")))
    }
}

/// Adds those of the nodes, children first, that vary with a variable.
fn activate(dag: &Dag, nodes: &[NodeId], variables: &[NodeId], active: &mut HashSet<NodeId>) {
    for id in nodes {
        let node = dag.node(*id);
        let varies = node.children.iter().any(|child| active.contains(child)) || dag.reads_inside(*id, variables);
        if varies && can_vary(node.field.data_type()) {
            active.insert(*id);
        }
    }
}
