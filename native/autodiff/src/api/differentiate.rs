//! Differentiation of calls, with the checks before and after the sweep.

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion_common::{DFSchema, Result, internal_err, plan_datafusion_err, plan_err};
use datafusion_expr::Expr;
use std::collections::HashMap;

use super::differentiation::Differentiation;
use super::{errors, variable};
use crate::algebra::{Algebra, place_sign};
use crate::graph::{NodeId, branches, export, import, to_program};
use crate::pullback::{Direction, NullSets, Pullback, PullbackError, Sources, tangent_of};
use crate::rules::Rules;
use crate::vocabulary::fields::{field_of, type_of};
use crate::vocabulary::messages::{abbreviate, unquoted_advice};
use crate::vocabulary::refusals::Refused;
use crate::vocabulary::types::{result_type, value_type};

/// Differentiates a call by these rules: the sum over its seeds of partial derivative times factor.
///
/// # Errors
/// A plan error if an argument cannot be differentiated by, a function on the way has no rule, a volatile call would be evaluated again, or
/// a value was computed from the variable by a node of the plan below.
pub fn differentiate(call: &Differentiation, schema: &DFSchema, rules: &Rules) -> Result<Expr> {
    let mut algebra = Algebra::new(schema);
    let derivatives = differentiate_calls(std::slice::from_ref(call), &mut algebra, schema, rules)?;
    match derivatives.as_slice() {
        [derivative] => export(&algebra, *derivative),
        _ => internal_err!("{call} has {} derivatives", derivatives.len()),
    }
}

/// Differentiates several calls of one function as a program: see [`Layers`](crate::graph::Layers).
///
/// # Errors
/// As [`differentiate`].
pub fn differentiate_batch(calls: &[Differentiation], schema: &DFSchema, rules: &Rules) -> Result<Expr> {
    let mut algebra = Algebra::new(schema);
    let derivatives = differentiate_calls(calls, &mut algebra, schema, rules)?;
    to_program(&algebra, &derivatives)
}

/// The function that is differentiated.
struct Function {
    node: NodeId,
    field: FieldRef,
}

/// A call whose arguments are nodes.
struct PreparedCall {
    variables: Vec<NodeId>,
    factors: Vec<Option<NodeId>>,
    /// The nodes that make the derivative NULL.
    required: Sources,
    result_type: DataType,
    /// Whether the planner was told that the derivative may be NULL.
    nullable: bool,
}

/// Differentiates several calls of one function in one graph. The seeds of all calls are complete, or of none.
fn differentiate_calls<'a>(
    calls: &[Differentiation],
    algebra: &mut Algebra<'a>,
    schema: &DFSchema,
    rules: &'a Rules,
) -> Result<Vec<NodeId>> {
    let Some(call) = calls.first() else { return Ok(vec![]) };
    let mut nulls = NullSets::new(rules);
    let function = Function { node: import(algebra, call.expression)?, field: field_of(call.expression, schema)? };
    let prepared = calls.iter().map(|call| prepare(call, &function, algebra, &mut nulls, schema));
    let prepared = prepared.collect::<Result<Vec<_>>>()?;
    algebra.end_primal();
    let mut derivatives = vec![];
    for (call, prepared) in calls.iter().zip(&prepared) {
        if call.seeds_complete {
            // A tangent is NULL where its variable is. Several calls may share a tangent, each for another variable.
            nulls.forget_derivatives(algebra);
            for (factor, variable) in prepared.factors.iter().zip(&prepared.variables) {
                let column = factor.and_then(|factor| tangent_of(algebra, factor));
                for tangent in factor.iter().chain(&column).filter(|_| column.is_some()) {
                    nulls.equate(algebra, *tangent, *variable);
                }
            }
        }
        let derivative = differentiate_prepared(call, function.node, prepared, algebra, &mut nulls, rules)?;
        let declared = if algebra.node(derivative).field.is_nullable() && !prepared.nullable {
            nulls.assert_never(algebra, derivative)?
        } else {
            derivative
        };
        let typed = algebra.cast(declared, &prepared.result_type)?;
        check_sampled_once(call, algebra, function.node, typed)?;
        derivatives.push(typed);
    }
    Ok(derivatives)
}

fn prepare(
    call: &Differentiation,
    function: &Function,
    algebra: &mut Algebra,
    nulls: &mut NullSets,
    schema: &DFSchema,
) -> Result<PreparedCall> {
    let columns =
        call.seeds.iter().map(|seed| variable::check_variable(call, seed.column, schema)).collect::<Result<Vec<_>>>();
    let columns = columns.map_err(|error| Refused::Variable.mark(error))?;
    check_numeric(call, call.expression, &function.field)?;
    let column_types = columns.iter().map(|column| type_of(column, schema)).collect::<Result<Vec<_>>>()?;
    let result_type = result_type(function.field.data_type(), &column_types);

    let root = function.node;
    let variables = columns.iter().map(|column| import(algebra, column)).collect::<Result<Vec<_>>>()?;
    if !call.analyzed {
        variable::check_nothing_else_varies(call, algebra, &algebra.reachable(root), &variables)
            .map_err(|error| Refused::UnsupportedRelation.mark(error))?;
    }
    let mut required = nulls.sources(algebra, root);
    let mut nullable = function.field.is_nullable();
    let mut factors = vec![];
    for seed in &call.seeds {
        factors.push(match seed.factor {
            None => None,
            Some(factor) => {
                let field = field_of(factor, schema)?;
                check_numeric(call, factor, &field)?;
                nullable |= !call.seeds_complete && field.is_nullable();
                let factor = import(algebra, factor)?;
                if !call.seeds_complete {
                    required.extend(nulls.sources(algebra, factor));
                }
                Some(factor)
            }
        });
    }
    Ok(PreparedCall { variables, factors, required, result_type, nullable })
}

/// Builds the derivative, NULL exactly where it has to be.
fn differentiate_prepared<'a>(
    call: &Differentiation,
    root: NodeId,
    prepared: &PreparedCall,
    algebra: &mut Algebra<'a>,
    nulls: &mut NullSets<'a>,
    rules: &'a Rules,
) -> Result<NodeId> {
    let PreparedCall { variables, factors, required, .. } = prepared;
    let primal = algebra.reachable(root);
    let direction = Direction { variables, tangents: factors, seeds_complete: call.seeds_complete };
    let swept =
        Pullback::new(rules, algebra, nulls, &primal, direction).and_then(|mut pullback| pullback.pull_back(root));
    let derivative = match swept {
        Ok(derivative) => place_sign(algebra, derivative)?,
        Err(PullbackError::Failed(error)) => return Err(error),
        Err(PullbackError::Refused(refusal)) => {
            return Err(Refused::MissingRule.mark(errors::word_refusal(call, algebra, *refusal)?));
        }
    };
    // A volatile function must not be evaluated again.
    let repeatable = primal.iter().all(|id| !algebra.node(*id).volatile).then_some(root);
    nulls.guard(algebra, derivative, required, repeatable)
}

fn check_numeric(call: &Differentiation, expr: &Expr, field: &Field) -> Result<()> {
    let data_type = field.data_type();
    let plain = value_type(data_type);
    let is_wildcard = expr.variant_name() == "Wildcard";
    if !is_wildcard && (plain.is_numeric() || plain.is_null()) {
        return Ok(());
    }
    let kind = if is_wildcard { "many columns".to_owned() } else { data_type.to_string() };
    let advice = match expr {
        Expr::Literal(value, _) => unquoted_advice(value).map_or(String::new(), |advice| format!(". {advice}")),
        _ => String::new(),
    };
    let error = plan_datafusion_err!("{call}: the expression must be a number; {} is {kind}{advice}", abbreviate(expr));
    Err(Refused::NotNumeric.mark(error))
}

/// Refuses a volatile value that would differ at each evaluation: one of the expression that the derivative reads, or a factor of the call
/// that the derivative reads twice.
fn check_sampled_once(call: &Differentiation, algebra: &Algebra, root: NodeId, derivative: NodeId) -> Result<()> {
    for id in algebra.reachable(derivative).into_iter().filter(|id| algebra.node(*id).volatile) {
        if algebra.reachable(root).contains(&id) || count_samples(algebra, id, derivative) > 1 {
            return plan_err!(
                "{call}: {} is volatile: the derivative would evaluate it again and draw another value. Compute it first, in a \
                 subquery or CTE, and use its column",
                abbreviate(&export(algebra, id)?)
            );
        }
    }
    Ok(())
}

/// Counts how often a node is evaluated for a row. Of the branches of a CASE only one is.
fn count_samples(algebra: &Algebra, sampled: NodeId, root: NodeId) -> usize {
    let mut counts: HashMap<NodeId, usize> = HashMap::new();
    for id in algebra.reachable(root) {
        let node = algebra.node(id);
        let of = |child: &NodeId| counts.get(child).copied().unwrap_or(0);
        let count = match &node.shape {
            _ if id == sampled => 1,
            Expr::Case(case) => {
                let values = branches(case);
                let (branches, conditions): (Vec<_>, Vec<_>) =
                    node.children.iter().enumerate().partition(|(position, _)| values.contains(position));
                let most = branches.into_iter().map(|(_, value)| of(value)).max().unwrap_or(0);
                conditions.into_iter().fold(most, |sum, (_, condition)| sum.saturating_add(of(condition)))
            }
            _ => node.children.iter().fold(0_usize, |sum, child| sum.saturating_add(of(child))),
        };
        counts.insert(id, count);
    }
    counts.get(&root).copied().unwrap_or(0)
}
