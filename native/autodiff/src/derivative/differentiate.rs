//! The derivative of an expression, with what is checked before and made sure of after the sweep.

use arrow::datatypes::DataType;
use datafusion_common::{DFSchema, Result, plan_err};
use datafusion_expr::{Expr, ExprSchemable};
use std::collections::HashMap;

use super::differentiation::Differentiation;
use super::{errors, variable};
use crate::algebra::Algebra;
use crate::graph::{NodeId, branches};
use crate::pullback::{NullSets, Pullback, Stopped};
use crate::rules::Rules;
use crate::vocabulary::columns::is_volatile;
use crate::vocabulary::messages::abbreviated;
use crate::vocabulary::types::{decoded, result_type};

/// The derivative that a call stands for by these rules: the sum over its seeds of partial derivative times factor.
///
/// # Errors
/// A plan error if an argument cannot be differentiated by, a function on the way has no rule, a volatile call would
/// be evaluated again, or a value was computed from the variable by a node of the plan below.
pub fn differentiate(call: &Differentiation, schema: &DFSchema, rules: &Rules) -> Result<Expr> {
    let columns =
        call.seeds.iter().map(|seed| variable::check(call, seed.column, schema)).collect::<Result<Vec<_>>>()?;
    let expression_type = check_numeric(call, call.expression, schema)?;
    let column_types = columns.iter().map(|column| column.get_type(schema)).collect::<Result<Vec<_>>>()?;
    let result_type = result_type(&expression_type, &column_types);

    let mut algebra = Algebra::new(schema);
    let root = algebra.import(call.expression)?;
    let primal = algebra.reachable(root);
    let variables = columns.iter().map(|column| algebra.import(column)).collect::<Result<Vec<_>>>()?;
    if !call.total {
        variable::check_none_computed_from(call, &algebra, &primal, &columns)?;
    }

    let mut nulls = NullSets::new(rules);
    let mut required = nulls.of(&algebra, root);
    let mut factors = vec![];
    for (seed, variable) in call.seeds.iter().zip(&variables) {
        factors.push(match seed.factor {
            None => None,
            Some(factor) => {
                check_numeric(call, factor, schema)?;
                let carried = matches!(factor, Expr::Column(_));
                let factor = algebra.import(factor)?;
                if !call.total {
                    required.extend(nulls.of(&algebra, factor));
                } else if carried {
                    nulls.equate(&algebra, factor, *variable);
                }
                Some(factor)
            }
        });
    }
    let swept = Pullback::new(rules, &mut algebra, &mut nulls, &primal, &variables, &factors, call.total)
        .and_then(|mut pullback| pullback.derivative(root));
    let derivative = match swept {
        Ok(derivative) => algebra.place_sign(derivative)?,
        Err(Stopped::Failed(error)) => return Err(error),
        Err(Stopped::Refused(refusal)) => return Err(errors::worded(call, &algebra, *refusal)?),
    };
    // What is volatile must not be evaluated again.
    let repeatable = primal.iter().all(|id| !is_volatile(&algebra.node(*id).shape)).then_some(root);
    let exact = nulls.guard(&mut algebra, derivative, &required, repeatable)?;
    let declared = if algebra.node(exact).field.is_nullable() && !is_nullable(call, schema)? {
        nulls.assert_never(&mut algebra, exact)?
    } else {
        exact
    };
    let typed = algebra.cast(declared, &result_type)?;
    check_drawn_once(call, &algebra, &primal, typed)?;
    algebra.export(typed)
}

/// Whether the call may be NULL, as declared to the planner.
fn is_nullable(call: &Differentiation, schema: &DFSchema) -> Result<bool> {
    let factors = call.seeds.iter().filter_map(|seed| seed.factor).filter(|_| !call.total);
    for read in std::iter::once(call.expression).chain(factors) {
        if read.nullable(schema)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn check_numeric(call: &Differentiation, expr: &Expr, schema: &DFSchema) -> Result<DataType> {
    let data_type = expr.get_type(schema)?;
    let plain = decoded(&data_type);
    if plain.is_numeric() || plain.is_null() {
        return Ok(data_type);
    }
    plan_err!("{call}: {} is {data_type}, and only numbers are differentiated", abbreviated(expr))
}

/// The error for a volatile value that would be another one each time: one of the expression that the derivative reads, or a
/// factor of the call that it reads twice.
fn check_drawn_once(call: &Differentiation, algebra: &Algebra, primal: &[NodeId], derivative: NodeId) -> Result<()> {
    for id in algebra.reachable(derivative).into_iter().filter(|id| is_volatile(&algebra.node(*id).shape)) {
        if primal.contains(&id) || draws(algebra, id, derivative) > 1 {
            return plan_err!(
                "{call}: {} is volatile, and the derivative would evaluate it again and so draw another value. Compute it \
                 first, in a subquery or CTE, and use its column",
                abbreviated(&algebra.export(id)?)
            );
        }
    }
    Ok(())
}

/// How often a node is evaluated for a row. Of the branches of a CASE one is.
fn draws(algebra: &Algebra, drawn: NodeId, root: NodeId) -> usize {
    let mut counts: HashMap<NodeId, usize> = HashMap::new();
    for id in algebra.reachable(root) {
        let node = algebra.node(id);
        let of = |child: &NodeId| counts.get(child).copied().unwrap_or(0);
        let count = match &node.shape {
            _ if id == drawn => 1,
            Expr::Case(case) => {
                let values = branches(case);
                let (chosen, always): (Vec<_>, Vec<_>) =
                    node.children.iter().enumerate().partition(|(position, _)| values.contains(position));
                let most = chosen.into_iter().map(|(_, value)| of(value)).max().unwrap_or(0);
                always.into_iter().fold(most, |sum, (_, condition)| sum.saturating_add(of(condition)))
            }
            _ => node.children.iter().fold(0_usize, |sum, child| sum.saturating_add(of(child))),
        };
        counts.insert(id, count);
    }
    counts.get(&root).copied().unwrap_or(0)
}
