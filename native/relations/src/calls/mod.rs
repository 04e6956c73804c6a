//! Replacing the calls of a node by `jvp` over the columns that vary.

mod above;
mod by_row;
mod identity;
mod site;

use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_common::{Column, Result, plan_err};
use datafusion_expr::expr::{Exists, InSubquery, ScalarFunction, SetComparison};
use datafusion_expr::expr_rewriter::NamePreserver;
use datafusion_expr::logical_plan::Subquery;
use datafusion_expr::{
    BinaryExpr, Distinct, DistinctOn, Expr, ExprSchemable, Join, LogicalPlan, Operator, RecursiveQuery, ScalarUDF, lit,
};
use std::sync::Arc;

use xql_autodiff::vocabulary::messages::abbreviated;
use xql_autodiff::vocabulary::columns::columns_read;
use crate::names::{Names, restore};
use crate::tangent::{Tangent, check_subqueries};
use crate::{Recognize, call_in};
use xql_autodiff::vocabulary::types::is_float;
use above::calls_above;
use by_row::{ByRow, null_with};
use identity::{Named, Scope};
use site::Site;

/// Replaces the calls in a plan, those of inner queries first.
#[derive(Debug)]
pub struct Calls {
    recognize: Recognize,
    names: Names,
    /// The inputs of the nodes whose subqueries are being looked into, the innermost last.
    around: Vec<Vec<LogicalPlan>>,
    /// The recursive queries whose recursive terms are being looked into, the innermost last.
    iterated: Vec<LogicalPlan>,
}

impl Calls {
    pub fn new(recognize: Recognize, plan: &LogicalPlan) -> Result<Self> {
        Ok(Self { recognize, names: Names::of(plan)?, around: vec![], iterated: vec![] })
    }

    /// The plan without calls of the operators, except for `jvp` over all that varies.
    #[recursive::recursive]
    pub fn replace(&mut self, plan: LogicalPlan) -> Result<LogicalPlan> {
        let plan = match plan {
            LogicalPlan::Aggregate(aggregate) => calls_above(aggregate, self.recognize)?,
            other => other,
        };
        let (plan, by_row) = self.numbered(plan)?;
        let plan = match plan {
            LogicalPlan::Join(join) => self.join_inputs(join)?,
            LogicalPlan::RecursiveQuery(query) => self.recursive_terms(query)?,
            other => other.map_children(|child| self.replace(child).map(Transformed::yes))?.data,
        };
        let recognize = self.recognize;
        let mut concerned = false;
        plan.apply_expressions(|expr| {
            concerned = concerned || expr.exists(|part| Ok(call_in(part, recognize) || subquery(part).is_some()))?;
            Ok(TreeNodeRecursion::Continue)
        })?;
        let inputs = plan.inputs();
        if !concerned || inputs.is_empty() || matches!(plan, LogicalPlan::Extension(_)) {
            return Ok(plan);
        }
        let inputs: Vec<_> = inputs.into_iter().cloned().collect();
        let mut site = Site::of(inputs);
        site.by_row = by_row;
        let names = NamePreserver::new(&plan);
        let mut exprs = vec![];
        for expr in plan.expressions() {
            exprs.push(match expr {
                // Columns are named by what is inside.
                sets @ Expr::GroupingSet(_) => {
                    sets.map_children(|key| self.named(key, &NamePreserver::new_for_projection(), &mut site))?.data
                }
                expr => self.named(expr, &names, &mut site)?.data,
            });
        }
        let replaced = match &plan {
            // `with_new_exprs` takes no order for it.
            LogicalPlan::Distinct(Distinct::On(on)) => distinct_on(on, exprs, site.inputs)?,
            other => other.with_new_exprs(exprs, site.inputs)?,
        };
        restore(replaced, plan.schema())
    }

    /// A node that reads numbered rows where calls in it are by row.
    fn numbered(&mut self, plan: LogicalPlan) -> Result<(LogicalPlan, ByRow)> {
        let mut names = std::mem::take(&mut self.names);
        let numbered = ByRow::of(plan, &mut names, self.recognize, &mut |names, plan| {
            std::mem::swap(names, &mut self.names);
            let replaced = self.replace(plan);
            std::mem::swap(names, &mut self.names);
            replaced
        });
        self.names = names;
        numbered
    }

    /// The right side of a LATERAL join may name columns of the left.
    fn join_inputs(&mut self, join: Join) -> Result<LogicalPlan> {
        let left = self.replace(join.left.as_ref().clone())?;
        self.around.push(vec![left.clone()]);
        let right = self.replace(join.right.as_ref().clone());
        self.around.pop();
        Ok(LogicalPlan::Join(Join { left: Arc::new(left), right: Arc::new(right?), ..join }))
    }

    fn recursive_terms(&mut self, query: RecursiveQuery) -> Result<LogicalPlan> {
        let static_term = Arc::new(self.replace(query.static_term.as_ref().clone())?);
        self.iterated.push(LogicalPlan::RecursiveQuery(query.clone()));
        let recursive_term = self.replace(query.recursive_term.as_ref().clone());
        self.iterated.pop();
        Ok(LogicalPlan::RecursiveQuery(RecursiveQuery {
            static_term,
            recursive_term: Arc::new(recursive_term?),
            ..query
        }))
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
            if subquery(&part).is_some() {
                self.around.push(site.before.clone());
                let replaced = with_subquery(part, |plan| self.replace(plan));
                self.around.pop();
                let replaced = replaced?;
                if let (Expr::ScalarSubquery(subquery), [input]) = (&replaced, site.inputs.as_mut_slice())
                    && let Some(column) = site.by_row.value(subquery, input, &mut self.names)?
                {
                    return Ok(Transformed::yes(Expr::Column(column)));
                }
                return Ok(Transformed::yes(replaced));
            }
            let Expr::ScalarFunction(call) = part else { return Ok(Transformed::no(part)) };
            match recognize(&call.func) {
                Some(operator) => self.call(call, &operator.tangent, site),
                None => Ok(Transformed::no(Expr::ScalarFunction(call))),
            }
        })
    }

    fn call(&mut self, call: ScalarFunction, jvp: &Arc<ScalarUDF>, site: &mut Site) -> Result<Transformed<Expr>> {
        let original = Expr::ScalarFunction(call.clone());
        let Some((expression, directions)) = call.args.split_first() else { return Ok(Transformed::no(original)) };
        let pairs: Vec<(&Expr, Option<&Expr>)> = match directions {
            [column] => vec![(column, None)],
            pairs => pairs.chunks(2).map(|pair| (&pair[0], pair.get(1))).collect(),
        };
        let mut directions = vec![];
        let mut variables = vec![];
        let mut independent = vec![];
        for (variable, seed) in &pairs {
            let variable = unnamed(variable);
            if !variable.get_type(&site.schema()).is_ok_and(|data_type| is_float(&data_type)) {
                // `simplify` says what is wrong with it.
                return Ok(Transformed::no(original));
            }
            let mut by_row = None;
            let (resolved, tangents) = match variable {
                Expr::Column(column) => match site.find(column) {
                    Some((number, column)) => {
                        let tangents = site.tangents(&mut self.names, expression, number, &column, jvp)?;
                        let input = &mut site.inputs[number];
                        by_row = site.by_row.tangents(expression, &column, input, &mut self.names, jvp)?;
                        (Resolved { column, around: None }, tangents)
                    }
                    None => return Ok(Transformed::no(original)),
                },
                Expr::OuterReferenceColumn(_, column) => self.outer(&original, expression, column, jvp, site)?,
                _ => return Ok(Transformed::no(original)),
            };
            if tangents.is_empty() && by_row.is_none() && !expression.exists(|part| Ok(resolved.is(part, site)))? {
                independent.push(variables.len());
            }
            variables.push(resolved);
            let mut arguments = vec![expression.clone(), variable.clone(), lit(1.0)];
            for (column, tangent) in tangents {
                arguments.extend([Expr::Column(column), factor(tangent)]);
            }
            check_subqueries(&arguments)?;
            if by_row.is_some() && call.func.name() == "jvp" {
                return plan_err!(
                    "{}: a subquery in it varies with {variable} by row, and jvp along a direction is not taken of subqueries",
                    abbreviated(&original)
                );
            }
            let own_value = by_row.is_some().then(|| variable.clone());
            for (column, tangent) in by_row.into_iter().flatten() {
                arguments.extend([Expr::Column(column), tangent]);
            }
            directions.push((*seed, arguments, own_value));
        }
        if !independent.is_empty() {
            let named: Vec<_> =
                variables.iter().map(|variable| variable.named(&site.before, &self.around)).collect::<Result<_>>()?;
            let recognize = self.recognize;
            let is_operator = |function: &ScalarUDF| recognize(function).is_some() || function == jvp.as_ref();
            for variable in independent {
                let here = Scope::here(&site.before);
                identity::check(&original, expression, variable, &named, &here, &self.iterated, &is_operator)?;
            }
        }
        // Then the node says it all, unless a column looks as if it were computed, which it has turned out not to be.
        let own = directions.iter().all(|(_, arguments, by_row)| arguments.len() == 3 && by_row.is_none());
        if own && columns_read(expression).iter().all(|column| column.relation.is_some()) {
            return Ok(Transformed::no(original));
        }
        let schema = site.schema();
        let mut sum: Option<Expr> = None;
        for (seed, arguments, own_value) in directions {
            let partial = Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(jvp), arguments));
            let partial = match own_value {
                Some(value) if value.nullable(&schema)? => null_with(&value, partial)?,
                _ => partial,
            };
            let term = match seed {
                None => partial,
                Some(seed) => {
                    binary(seed.clone().cast_to(&partial.get_type(&schema)?, &schema)?, Operator::Multiply, partial)
                }
            };
            sum = Some(match sum {
                None => term,
                Some(sum) => binary(sum, Operator::Plus, term),
            });
        }
        match sum {
            Some(sum) => Ok(Transformed::yes(sum.cast_to(&original.get_type(&schema)?, &schema)?)),
            None => Ok(Transformed::no(original)),
        }
    }

    /// The variable is a column of the query around: what else varies with it must not be read here.
    fn outer(
        &mut self,
        original: &Expr,
        expression: &Expr,
        variable: &Column,
        jvp: &Arc<ScalarUDF>,
        site: &mut Site,
    ) -> Result<(Resolved, Vec<(Column, Tangent)>)> {
        let found = self.around.iter().enumerate().rev().find_map(|(query, inputs)| {
            let site = Site::of(inputs.clone());
            let (number, variable) = site.find(variable)?;
            Some((query, site, number, variable))
        });
        let Some((query, mut outer, number, column)) = found else {
            return plan_err!("{}: {variable} is no column of a query around it", abbreviated(original));
        };
        if !outer.tangents(&mut self.names, expression, number, &column, jvp)?.is_empty() {
            return plan_err!(
                "{}: what it reads of the query around it varies with {column}. Take the derivative there",
                abbreviated(original)
            );
        }
        // Columns of this query must not be computed from it either, which the carrier finds out.
        let nowhere = site.inputs.len();
        let tangents = site.tangents(&mut self.names, expression, nowhere, variable, jvp)?;
        Ok((Resolved { column, around: Some(query) }, tangents))
    }
}

/// The column that a call names as a variable, as it is called in the inputs that have it.
#[derive(Debug)]
struct Resolved {
    column: Column,
    /// The number of the query around that it is a column of, if it is not of the node itself.
    around: Option<usize>,
}

impl Resolved {
    /// Whether an expression is the variable.
    fn is(&self, expr: &Expr, site: &Site) -> bool {
        match (expr, self.around) {
            (Expr::Column(column), None) => site.find(column).is_some_and(|(_, column)| column == self.column),
            (Expr::OuterReferenceColumn(_, column), Some(_)) => column == &self.column,
            _ => false,
        }
    }

    fn named<'p>(&self, inputs: &'p [LogicalPlan], around: &'p [Vec<LogicalPlan>]) -> Result<Named<'p>> {
        let outer = self.around.and_then(|query| Some(Scope::around(around.get(query)?, query)));
        Named::of(self.column.clone(), outer.unwrap_or_else(|| Scope::here(inputs)))
    }
}

/// A tangent as an argument of `jvp`.
fn factor(tangent: Tangent) -> Expr {
    match tangent {
        Tangent::Zero => lit(0.0),
        Tangent::One => lit(1.0),
        Tangent::Column(tangent) => Expr::Column(tangent),
    }
}

fn binary(left: Expr, op: Operator, right: Expr) -> Expr {
    Expr::BinaryExpr(BinaryExpr::new(Box::new(left), op, Box::new(right)))
}

fn unnamed(expr: &Expr) -> &Expr {
    match expr {
        Expr::Alias(alias) => unnamed(&alias.expr),
        other => other,
    }
}

fn distinct_on(on: &DistinctOn, mut exprs: Vec<Expr>, mut inputs: Vec<LogicalPlan>) -> Result<LogicalPlan> {
    let sorted = exprs.split_off(on.on_expr.len() + on.select_expr.len());
    let selected = exprs.split_off(on.on_expr.len());
    let order =
        on.sort_expr.as_ref().map(|order| order.iter().zip(sorted).map(|(sort, by)| sort.with_expr(by)).collect());
    let input = Arc::new(inputs.pop().unwrap_or_default());
    Ok(LogicalPlan::Distinct(Distinct::On(DistinctOn::try_new(exprs, selected, order, input)?)))
}

fn subquery(expr: &Expr) -> Option<&Subquery> {
    match expr {
        Expr::ScalarSubquery(subquery)
        | Expr::Exists(Exists { subquery, .. })
        | Expr::InSubquery(InSubquery { subquery, .. })
        | Expr::SetComparison(SetComparison { subquery, .. }) => Some(subquery),
        _ => None,
    }
}

/// An expression with the plan of its subquery replaced.
fn with_subquery(mut expr: Expr, replace: impl FnOnce(LogicalPlan) -> Result<LogicalPlan>) -> Result<Expr> {
    if let Expr::ScalarSubquery(subquery)
    | Expr::Exists(Exists { subquery, .. })
    | Expr::InSubquery(InSubquery { subquery, .. })
    | Expr::SetComparison(SetComparison { subquery, .. }) = &mut expr
    {
        subquery.subquery = Arc::new(replace(subquery.subquery.as_ref().clone())?);
    }
    Ok(expr)
}
