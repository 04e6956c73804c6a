//! Replacing the calls of a node by `jvp` over the columns that vary.

mod above;
mod branches;
mod derivative;
mod identity;
mod resolve;
mod site;

use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_common::{Result, plan_datafusion_err, plan_err};
use datafusion_expr::expr_rewriter::NamePreserver;
use datafusion_expr::{Expr, Join, LogicalPlan, RecursiveQuery, ScalarUDF};
use std::sync::Arc;
use xql_autodiff::vocabulary::messages::{abbreviated, message_of};

use crate::vocabulary::names::{Names, restore};
use crate::vocabulary::operators::{Recognize, has_call};
use above::calls_above;
use branches::branches;
use derivative::{DirectionalDerivative, TangentsOf};
use identity::{Named, Scope};
use resolve::{Owner, Resolved};
use site::Site;

/// Replaces the calls in a plan, those of inner queries first.
#[derive(Debug)]
pub struct Differentiation {
    recognize: Recognize,
    names: Names,
    /// The inputs of the nodes whose subqueries are being looked into, the innermost last.
    outer: Vec<Vec<Arc<LogicalPlan>>>,
    /// The recursive queries whose recursive terms are being looked into, the innermost last.
    iterated: Vec<LogicalPlan>,
}

impl Differentiation {
    pub fn new(recognize: Recognize, plan: &LogicalPlan) -> Result<Self> {
        Ok(Self { recognize, names: Names::of(plan)?, outer: vec![], iterated: vec![] })
    }

    /// The plan without calls of the operators, except for those that say all by themselves.
    #[recursive::recursive]
    pub fn rewrite(&mut self, plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
        calls_above(plan, self.recognize)?
            .transform_data(|plan| self.children(plan))?
            .transform_data(|plan| self.subqueries(plan))?
            .transform_data(|plan| self.node(plan))
    }

    fn children(&mut self, plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
        match plan {
            LogicalPlan::Join(join) => self.join(join),
            LogicalPlan::RecursiveQuery(query) => self.recursive_query(query),
            other => other.map_children(|child| self.rewrite(child)),
        }
    }

    /// The right side of a join may name columns of the left: `... FROM d, LATERAL (SELECT d.x * w AS q FROM p) AS m`.
    fn join(&mut self, join: Join) -> Result<Transformed<LogicalPlan>> {
        let left = self.rewrite(Arc::unwrap_or_clone(join.left))?;
        let left = left.update_data(Arc::new);
        self.outer.push(vec![Arc::clone(&left.data)]);
        let right = self.rewrite(Arc::unwrap_or_clone(join.right));
        self.outer.pop();
        let right = right?;
        let transformed = left.transformed || right.transformed;
        let join = Join { left: left.data, right: Arc::new(right.data), ..join };
        Ok(Transformed::new_transformed(LogicalPlan::Join(join), transformed))
    }

    fn recursive_query(&mut self, query: RecursiveQuery) -> Result<Transformed<LogicalPlan>> {
        self.iterated.push(LogicalPlan::RecursiveQuery(query.clone()));
        let recursive_term = self.rewrite(Arc::unwrap_or_clone(query.recursive_term));
        self.iterated.pop();
        let recursive_term = recursive_term?;
        let static_term = self.rewrite(Arc::unwrap_or_clone(query.static_term))?;
        let transformed = static_term.transformed || recursive_term.transformed;
        let query = RecursiveQuery {
            static_term: Arc::new(static_term.data),
            recursive_term: Arc::new(recursive_term.data),
            ..query
        };
        Ok(Transformed::new_transformed(LogicalPlan::RecursiveQuery(query), transformed))
    }

    /// The subqueries of a node may name columns of its inputs: `... FROM d WHERE EXISTS (SELECT 1 FROM m WHERE m.x > d.y)`.
    fn subqueries(&mut self, plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
        if matches!(plan, LogicalPlan::Extension(_)) {
            return Ok(Transformed::no(plan));
        }
        if !has_subquery(&plan)? {
            return Ok(Transformed::no(plan));
        }
        self.outer.push(plan.inputs().into_iter().cloned().map(Arc::new).collect());
        let rewritten = plan.map_subqueries(|subquery| self.rewrite(subquery));
        self.outer.pop();
        rewritten
    }

    /// Replaces the calls in the expressions of a node, whose inputs get the tangents that the calls ask for.
    ///
    /// ```text
    /// Filter: grad(m.q * m.q, m.w) > 1
    ///   SubqueryAlias: m
    ///     Projection: p.w, p.w * d.x AS q
    /// ```
    ///
    /// becomes
    ///
    /// ```text
    /// Projection: m.w, m.q
    ///   Filter: jvp(m.q * m.q, m.w, 1, m.q, m.∂q/∂w) > 1
    ///     SubqueryAlias: m
    ///       Projection: p.w, p.w * d.x AS q, jvp(p.w * d.x, p.w, 1) AS ∂q/∂w
    /// ```
    fn node(&mut self, plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
        let foreign = matches!(plan, LogicalPlan::Extension(_));
        if foreign || plan.inputs().is_empty() || !has_call(&plan, self.recognize)? {
            return Ok(Transformed::no(plan));
        }
        let schema = Arc::clone(plan.schema());
        let names = NamePreserver::new(&plan);
        let (plan, inputs) = without_inputs(plan)?;
        let mut site = Site::of(inputs);
        let rewritten = plan.map_expressions(|expr| match expr {
            // Columns are named by what is inside.
            sets @ Expr::GroupingSet(_) => {
                sets.map_children(|key| self.named(key, &NamePreserver::new_for_projection(), &mut site))
            }
            expr => self.named(expr, &names, &mut site),
        })?;
        if !rewritten.transformed {
            return Ok(Transformed::no(with_inputs(rewritten.data, site.before)?));
        }
        let plan = with_inputs(rewritten.data, site.inputs)?.recompute_schema()?;
        Ok(Transformed::yes(restore(plan, &schema)?))
    }

    /// An expression with its calls replaced, under the name that it has.
    fn named(&mut self, expr: Expr, names: &NamePreserver, site: &mut Site) -> Result<Transformed<Expr>> {
        let name = names.save(&expr);
        let replaced = self.expression(expr, site)?;
        Ok(if replaced.transformed { replaced.update_data(|expr| name.restore(expr)) } else { replaced })
    }

    fn expression(&mut self, expr: Expr, site: &mut Site) -> Result<Transformed<Expr>> {
        let recognize = self.recognize;
        expr.transform_up(|part| {
            let operator = match &part {
                Expr::ScalarFunction(call) => recognize(&call.func),
                _ => None,
            };
            let replaced = match operator {
                Some(operator) => self.call(&part, &operator.tangent, site)?,
                None => None,
            };
            Ok(replaced.map_or_else(|| Transformed::no(part), Transformed::yes))
        })
    }

    /// What stands for a call; nothing if it stays as it is, since it says all by itself or `simplify` says what is wrong.
    fn call(&mut self, call: &Expr, jvp: &Arc<ScalarUDF>, site: &mut Site) -> Result<Option<Expr>> {
        let Some(derivative) = DirectionalDerivative::parse(call) else { return Ok(None) };
        let Some(variables) = self.resolve(&derivative, site)? else { return Ok(None) };
        let tangents = self.carry(&derivative, &variables, jvp, site)?;
        let arguments = derivative.arguments(&tangents)?;
        self.diagnose(&derivative, &variables, &tangents, jvp, site)?;
        self.diagnose_branches(&derivative, &variables, jvp, site)?;
        if derivative.is_local(&tangents) {
            return Ok(None);
        }
        derivative.emit(arguments, jvp, &site.schema()).map(Some)
    }

    /// The columns by which the call differentiates; nothing if one of them is none.
    fn resolve(&self, derivative: &DirectionalDerivative, site: &Site) -> Result<Option<Vec<Resolved>>> {
        let variables = derivative.directions.iter();
        variables.map(|direction| Resolved::of(direction.variable, derivative.call, site, &self.outer)).collect()
    }

    /// The columns other than the variable that vary with it, for each variable, with their tangents.
    fn carry(
        &mut self,
        derivative: &DirectionalDerivative,
        variables: &[Resolved],
        jvp: &Arc<ScalarUDF>,
        site: &mut Site,
    ) -> Result<Vec<TangentsOf>> {
        let function = derivative.function;
        let mut tangents = vec![];
        for variable in variables {
            tangents.push(match variable.owner {
                Owner::Input(input) => site.tangents(&mut self.names, function, Some(input), &variable.column, jvp)?,
                Owner::OuterQuery { query, input } => {
                    let mut outer = Site::of(self.outer[query].iter().map(|input| input.as_ref().clone()).collect());
                    let column = &variable.column;
                    if !outer.tangents(&mut self.names, function, Some(input), column, jvp)?.is_empty() {
                        return plan_err!(
                            "{}: what it reads of the query around it varies with {column}. Take the derivative there",
                            abbreviated(derivative.call)
                        );
                    }
                    // Columns of this query must not be computed from it either, which the carrier finds out.
                    site.tangents(&mut self.names, function, None, &variable.named, jvp)?
                }
            });
        }
        Ok(tangents)
    }

    /// The error for a variable that the function does not depend on, if it depends on another reference to the same column.
    fn diagnose(
        &self,
        derivative: &DirectionalDerivative,
        variables: &[Resolved],
        tangents: &[TangentsOf],
        jvp: &ScalarUDF,
        site: &Site,
    ) -> Result<()> {
        let function = derivative.function;
        let mut independent = vec![];
        for (number, (variable, tangents)) in variables.iter().zip(tangents).enumerate() {
            if tangents.is_empty() && !function.exists(|part| Ok(variable.is(part, site)))? {
                independent.push(number);
            }
        }
        if independent.is_empty() {
            return Ok(());
        }
        let named = variables.iter().map(|variable| {
            let scope = match variable.owner {
                Owner::Input(_) => Scope::here(&site.before),
                Owner::OuterQuery { query, .. } => Scope::outer(&self.outer[query], query),
            };
            Named::of(variable.column.clone(), scope)
        });
        let named = named.collect::<Result<Vec<_>>>()?;
        let is_operator = |function: &ScalarUDF| (self.recognize)(function).is_some() || function == jvp;
        for variable in independent {
            let here = Scope::here(&site.before);
            identity::check(derivative.call, function, variable, &named, &here, &self.iterated, &is_operator)?;
        }
        Ok(())
    }

    /// The error that the call would be over one branch alone of a UNION ALL that a variable comes from.
    fn diagnose_branches(
        &mut self,
        derivative: &DirectionalDerivative,
        variables: &[Resolved],
        jvp: &Arc<ScalarUDF>,
        site: &Site,
    ) -> Result<()> {
        for variable in variables {
            let Owner::Input(number) = variable.owner else { continue };
            let input = &site.before[number];
            let index = input.schema().maybe_index_of_column(&variable.column);
            let (Some(index), false) = (index, derivative.function.exists(|part| Ok(variable.is(part, site)))?) else {
                continue;
            };
            for (branch, position) in branches(input, index)?.into_iter().zip(1..) {
                let mut inputs = site.before.clone();
                inputs[number] = branch;
                let names = self.names.clone();
                self.call(derivative.call, jvp, &mut Site::of(inputs)).map_err(|error| {
                    plan_datafusion_err!("in branch {position} of a UNION ALL: {}", message_of(error))
                })?;
                self.names = names;
            }
        }
        Ok(())
    }
}

/// Whether an expression of a node itself has a subquery.
fn has_subquery(node: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    node.apply_subqueries(|_| {
        found = true;
        Ok(TreeNodeRecursion::Stop)
    })?;
    Ok(found)
}

/// A node and its inputs, in the places of which there is nothing.
fn without_inputs(plan: LogicalPlan) -> Result<(LogicalPlan, Vec<LogicalPlan>)> {
    let mut inputs = vec![];
    let plan = plan.map_children(|input| {
        inputs.push(input);
        Ok(Transformed::yes(LogicalPlan::default()))
    })?;
    Ok((plan.data, inputs))
}

/// A node with these inputs in the places of its own.
fn with_inputs(plan: LogicalPlan, inputs: Vec<LogicalPlan>) -> Result<LogicalPlan> {
    let mut inputs = inputs.into_iter();
    let plan = plan.map_children(|place| Ok(inputs.next().map_or_else(|| Transformed::no(place), Transformed::yes)))?;
    Ok(plan.data)
}
