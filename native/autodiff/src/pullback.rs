//! Reverse mode: cotangents carried from the output of an expression to the variables.

use arrow::datatypes::DataType;
use datafusion_common::{Result, plan_err};
use datafusion_expr::{Case, Expr};
use std::collections::{HashMap, HashSet};

use crate::call::{Call, abbreviated};
use crate::dag::{Dag, NodeId};
use crate::nulls::NullSets;
use crate::rules::{self, Bindings, Derivative, Rule};
use crate::variable::{decoded, is_float};

/// The reverse sweep over one expression.
pub struct Pullback<'p, 'a> {
    call: &'p Call<'p>,
    dag: &'p mut Dag<'a>,
    nulls: &'p mut NullSets,
    variables: &'p [NodeId],
    /// The nodes that vary with a variable.
    active: HashSet<NodeId>,
    gradients: HashMap<NodeId, Vec<NodeId>>,
    /// The derivatives of `CASE` that are 0 in some branches.
    selections: HashSet<NodeId>,
}

impl<'p, 'a> Pullback<'p, 'a> {
    /// Prepares the sweep over the nodes of an expression, children first, for the given variables.
    pub fn new(
        call: &'p Call<'p>,
        dag: &'p mut Dag<'a>,
        nulls: &'p mut NullSets,
        primal: &[NodeId],
        variables: &'p [NodeId],
    ) -> Result<Self> {
        let mut active = variables.iter().copied().collect();
        activate(dag, primal, variables, &mut active);
        // In single precision only if the whole chain is.
        let single = primal
            .iter()
            .filter(|id| active.contains(id))
            .chain(variables)
            .all(|id| decoded(dag.data_type(*id)) == &DataType::Float32);
        dag.set_working_type(if single { DataType::Float32 } else { DataType::Float64 });
        Ok(Self { call, dag, nulls, variables, active, gradients: HashMap::new(), selections: HashSet::new() })
    }

    /// The partial derivatives of a node by each of the variables.
    #[recursive::recursive]
    pub fn gradient(&mut self, root: NodeId) -> Result<Vec<NodeId>> {
        if let Some(gradient) = self.gradients.get(&root) {
            return Ok(gradient.clone());
        }
        let mut cotangents = HashMap::from([(root, self.dag.number(1.0)?)]);
        for id in self.dag.reachable(root).into_iter().rev() {
            if self.active.contains(&id)
                && !self.variables.contains(&id)
                && let Some(cotangent) = cotangents.get(&id).copied()
            {
                for (input, partial) in self.partials(id)? {
                    let contribution = self.pulled_back(cotangent, partial)?;
                    let sum = match cotangents.get(&input) {
                        Some(others) => self.dag.add(*others, contribution)?,
                        None => contribution,
                    };
                    cotangents.insert(input, sum);
                }
            }
        }
        let zero = self.dag.number(0.0)?;
        let gradient: Vec<_> =
            self.variables.iter().map(|variable| cotangents.get(variable).copied().unwrap_or(zero)).collect();
        self.gradients.insert(root, gradient.clone());
        Ok(gradient)
    }

    /// The product of a cotangent and a partial derivative.
    ///
    /// Into the derivative of a `CASE` the cotangent goes branch by branch, so that a branch that does not vary
    /// contributes nothing, also where the cotangent is infinite: `sqrt(greatest(x, 0))` has the derivative 0 at -1.
    fn pulled_back(&mut self, cotangent: NodeId, partial: NodeId) -> Result<NodeId> {
        let shape = match &self.dag.node(partial).shape {
            Expr::Case(case) if self.selections.contains(&partial) && self.dag.as_number(cotangent).is_none() => {
                case.clone()
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

    /// Whether a branch is 0, also if it is so only where it is not NULL.
    fn vanishes(&self, id: NodeId) -> bool {
        let node = self.dag.node(id);
        match &node.shape {
            Expr::Case(case) => branches(case).into_iter().all(|value| self.vanishes(node.children[value])),
            Expr::Literal(scalar, _) => scalar.is_null() || self.dag.is_zero(id),
            _ => false,
        }
    }

    /// The partial derivatives of a node by what it directly, or for CASE through its branches, depends on.
    fn partials(&mut self, id: NodeId) -> Result<Vec<(NodeId, NodeId)>> {
        if self.dag.data_type(id).is_decimal() {
            return self.decimal(id);
        }
        let children = self.dag.node(id).children.clone();
        let rule = match &self.dag.node(id).shape {
            Expr::Case(case) => {
                let case = case.clone();
                return self.case_partials(id, &case, &children);
            }
            Expr::Cast(_) | Expr::TryCast(_) if is_float(self.dag.data_type(children[0])) => {
                return Ok(vec![(children[0], self.dag.number(1.0)?)]);
            }
            Expr::BinaryExpr(binary) => rules::of_operator(binary.op)?,
            Expr::Negative(_) => rules::of_negation()?,
            Expr::ScalarFunction(call) => rules::of_function(&call.func, children.len())?,
            _ => None,
        };
        match rule {
            Some(rule) => self.rule_partials(id, &rule, &children),
            None => self.no_rule(id),
        }
    }

    fn rule_partials(&mut self, id: NodeId, rule: &Rule, inputs: &[NodeId]) -> Result<Vec<(NodeId, NodeId)>> {
        let bindings = Bindings { names: &rule.inputs, inputs, output: id };
        match &rule.derivative {
            Derivative::Partials(formulas) => {
                let mut partials = vec![];
                for (input, formula) in inputs.iter().zip(formulas) {
                    if self.active.contains(input) {
                        partials.push((*input, formula.evaluate(self.dag, &bindings)?));
                    }
                }
                Ok(partials)
            }
            Derivative::Selection(case) => {
                let case = case.evaluate(self.dag, &bindings)?;
                activate(self.dag, &self.dag.reachable(case), self.variables, &mut self.active);
                let gradient = self.gradient(case)?;
                Ok(self.variables.iter().copied().zip(gradient).collect())
            }
        }
    }

    /// CASE is differentiated branch by branch under the same conditions, so that what a branch not taken would
    /// compute never enters.
    fn case_partials(&mut self, id: NodeId, case: &Case, children: &[NodeId]) -> Result<Vec<(NodeId, NodeId)>> {
        let first = usize::from(case.expr.is_some());
        let values = branches(case);
        let mut gradients = vec![];
        for value in &values {
            gradients.push(self.gradient(children[*value])?);
        }
        let mut partials = vec![];
        for (which, variable) in self.variables.iter().enumerate() {
            if gradients.iter().all(|gradient| self.dag.is_zero(gradient[which])) {
                continue;
            }
            let mut derivative = children.to_vec();
            for (value, gradient) in values.iter().zip(&gradients) {
                let mut required = self.nulls.of(self.dag, children[*value])?;
                // WHEN x > 0 THEN ...: the condition has seen to it that x is not NULL.
                if first == 0 && (*value - first) % 2 == 1 {
                    let seen_to = self.nulls.ruled_out_by(self.dag, children[*value - 1])?;
                    required.retain(|source| !seen_to.contains(source));
                }
                let exact = self.nulls.guard(self.dag, gradient[which], &required)?;
                derivative[*value] = self.dag.cast_to_working_type(exact)?;
            }
            let selects = values
                .iter()
                .map(|value| derivative[*value])
                .any(|branch| self.vanishes(branch) || self.selections.contains(&branch));
            let partial = self.dag.intern(Expr::Case(case.clone()), derivative)?;
            self.nulls.equate(self.dag, partial, id)?;
            if selects {
                self.selections.insert(partial);
            }
            partials.push((*variable, partial));
        }
        Ok(partials)
    }

    /// DataFusion turns floats into decimals by itself, in `coalesce(x, 1.5::DECIMAL)` for one, so the derivative of the
    /// conversion is neither 0 nor 1 beyond doubt.
    fn decimal<T>(&self, id: NodeId) -> Result<T> {
        plan_err!(
            "{}: {} varies with a float but is {}, and decimals are not differentiated. Convert the decimals among its \
             inputs, CAST(... AS DOUBLE)",
            self.call,
            abbreviated(&self.dag.export(id)?),
            self.dag.data_type(id)
        )
    }

    fn no_rule<T>(&self, id: NodeId) -> Result<T> {
        let expr = self.dag.export(id)?;
        let what = match &expr {
            Expr::ScalarFunction(call) => format!("the function {}", call.func.name()),
            Expr::BinaryExpr(binary) => format!("the operator {}", binary.op),
            Expr::ScalarSubquery(_) => "a subquery that reads the variable".to_owned(),
            other => other.variant_name().to_owned(),
        };
        let columns: Vec<_> = self.call.directions.iter().map(|direction| abbreviated(direction.column)).collect();
        plan_err!(
            "{}: {} varies with {}, and no derivative is known for {what}. Write it with functions that have one, or \
             compute it in a subquery or CTE, whose columns count as constants",
            self.call,
            abbreviated(&expr),
            columns.join(", ")
        )
    }
}

/// The positions of the values of a `CASE` among its children.
fn branches(case: &Case) -> Vec<usize> {
    let first = usize::from(case.expr.is_some());
    let pairs = case.when_then_expr.len();
    let values = (0..pairs).map(|i| first + 2 * i + 1);
    values.chain(case.else_expr.is_some().then_some(first + 2 * pairs)).collect()
}

/// Adds those of the nodes, children first, that vary with a variable.
fn activate(dag: &Dag, nodes: &[NodeId], variables: &[NodeId], active: &mut HashSet<NodeId>) {
    for id in nodes {
        let node = dag.node(*id);
        let varies = node.children.iter().any(|child| active.contains(child)) || dag.reads_inside(*id, variables);
        if varies && carries_floats(node.field.data_type()) {
            active.insert(*id);
        }
    }
}

/// Whether a value of this type can vary with a float: a float, or anything that can hold or approximate one.
fn carries_floats(data_type: &DataType) -> bool {
    is_float(data_type) || data_type.is_nested() || data_type.is_decimal()
}
