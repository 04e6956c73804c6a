//! Rewrites one call, over inputs that have its tangents.

use datafusion_common::tree_node::TreeNode;
use datafusion_common::{Column, Result, plan_err};
use datafusion_expr::{Expr, LogicalPlan, ScalarUDF};
use std::collections::BTreeSet;
use std::sync::Arc;
use xql_autodiff::vocabulary::columns::columns_read;
use xql_autodiff::vocabulary::messages::abbreviate;

use super::by_row::{ReadBy, null_with};
use super::call::ResolvedCall;
use super::context::Context;
use super::derivative::{TangentsOf, Term};
use super::diagnose::{check_branches, check_references, check_subqueries};
use super::resolve::{Owner, ResolvedVariable};
use super::tangent_cache::{Inputs, TangentRequest};
use crate::jvp::Perturb;
use crate::vocabulary::source::beside;

/// Rewrites a call. Returns `None` if the call stays: `simplify` expands it by its node alone, or reports what is wrong
/// with it.
pub fn replace(call: &Expr, jvp: &Arc<ScalarUDF>, inputs: &mut Inputs, context: &mut Context) -> Result<Option<Expr>> {
    let Some(call) = ResolvedCall::resolve(call, jvp, inputs, context)? else { return Ok(None) };
    let entered = inputs.plans.clone();
    let mut varying = propagate(&call, inputs, context)?;
    let by_row = sweep(&call, &mut varying, inputs, context)?;
    let SubqueryTangents { tangents: along, swept } = sweep_along(&call, &varying, inputs, context)?;
    let by_rows = by_row || !swept.is_empty();
    let VaryingColumns { tangents, moved } = varying;
    let has_moved = !moved.is_empty();
    let along = (has_moved || !swept.is_empty()).then(|| along.into_iter().chain(moved).collect::<TangentsOf>());
    let arguments = call.derivative.arguments(&tangents)?;
    check_subqueries(&call, inputs, context)?;
    if !has_moved {
        check_references(&call, &tangents, (inputs, by_row), &swept, context)?;
    }
    if !by_rows {
        check_branches(&call, inputs, &entered, context)?;
    }
    if call.derivative.is_local(&tangents) && !by_row && along.is_none() {
        return Ok(None);
    }
    let emitted = call.derivative.emit(arguments, along.unwrap_or_default(), jvp, &inputs.schema())?;
    match call.derivative.terms.first() {
        // There is no derivative by a value that is NULL, whether it is read or not.
        Some(term) if by_row => null_with(term.variable, emitted).map(Some),
        _ => Ok(Some(emitted)),
    }
}

/// The columns that vary with the variables, other than the variables themselves.
#[derive(Default)]
struct VaryingColumns {
    /// For each variable, with their tangents.
    tangents: Vec<TangentsOf>,
    /// The columns whose tangents are along the seeds already.
    moved: TangentsOf,
}

/// Propagates the tangents that a call needs to the inputs.
fn propagate(call: &ResolvedCall, inputs: &mut Inputs, context: &mut Context) -> Result<VaryingColumns> {
    let is_along = call.derivative.is_along_tangents();
    let perturb = if is_along { Perturb::AllRows } else { Perturb::OwnRow { by_value: false } };
    let mut varying = VaryingColumns::default();
    for (variable, Term { seed, .. }) in call.terms() {
        let request = |owner, variable| TangentRequest { jvp: call.jvp, perturb, owner, variable, along: None };
        let input = match variable.owner {
            Owner::Input(input) => input,
            Owner::OuterQuery { query, input } => {
                check_outer(call, query, request(Some(input), &variable.column), context)?;
                // Columns of this query must not be computed from it either, which the propagation checks.
                varying.tangents.push(inputs.tangents(call.function(), request(None, &variable.named), context)?);
                continue;
            }
        };
        let found = inputs.tangents(call.function(), request(Some(input), &variable.column), context)?;
        let seed = seed.filter(|seed| is_along && !columns_read(seed).is_empty());
        match seed {
            // Each row moves along its own seed, so the seed must be propagated with the tangents.
            Some(seed) if !found.is_empty() && rows_mix(&inputs.plans[input])? => {
                let along = beside(seed, &variable.column, &inputs.plans[input])?;
                let along = TangentRequest { along: Some(&along), ..request(Some(input), &variable.column) };
                varying.moved.extend(inputs.tangents(call.function(), along, context)?);
                varying.tangents.push(vec![]);
            }
            _ => varying.tangents.push(found),
        }
    }
    Ok(varying)
}

/// Refuses a call that reads columns of the outer query which vary with its variable.
fn check_outer(call: &ResolvedCall, query: usize, request: TangentRequest, context: &mut Context) -> Result<()> {
    let mut outer = Inputs::new(context.outer[query].iter().map(|input| input.as_ref().clone()).collect());
    if outer.tangents(call.function(), request, context)?.is_empty() {
        return Ok(());
    }
    plan_err!(
        "{}: what it reads of the query around it varies with {}. Take the derivative there",
        abbreviate(call.derivative.call),
        request.variable
    )
}

/// Returns whether a value in one row of a plan may be computed from other rows.
fn rows_mix(plan: &LogicalPlan) -> Result<bool> {
    plan.exists(|node| Ok(matches!(node, LogicalPlan::Window(_))))
}

/// Returns the columns of inputs among the variables.
fn of_inputs<'c>(call: &'c ResolvedCall) -> impl Iterator<Item = (usize, usize, &'c Column, Option<&'c Expr>)> {
    let terms = call.terms().enumerate();
    terms.filter_map(|(number, (ResolvedVariable { column, owner, .. }, term))| match owner {
        Owner::Input(input) => Some((number, *input, column, term.seed)),
        Owner::OuterQuery { .. } => None,
    })
}

/// Adds the subqueries of the function that read the relation of a variable, with their derivatives by the row's own
/// value. Returns whether there are any.
fn sweep(
    call: &ResolvedCall,
    varying: &mut VaryingColumns,
    inputs: &mut Inputs,
    context: &mut Context,
) -> Result<bool> {
    let mut by_row = false;
    if call.derivative.is_along_tangents() {
        return Ok(by_row);
    }
    let reads_items = reads_items(call, varying);
    for (number, input, variable, _) in of_inputs(call) {
        let Inputs { plans, by_row: variables, .. } = inputs;
        let (input, names) = (&mut plans[input], &mut context.names);
        let read = ReadBy { variable, reads_items, drops_zeros: context.zeros.are_left_out };
        let swept = variables.tangents(call.function(), read, input, names, call.jvp)?;
        let Some(swept) = swept else { continue };
        by_row = true;
        varying.tangents[number].extend(swept);
    }
    Ok(by_row)
}

/// Returns whether the queries in FROM that a function reads vary with the variables of a call. They are other
/// references to the relation. If the function depends on a variable itself, the derivative is by that reference alone.
fn reads_items(call: &ResolvedCall, varying: &VaryingColumns) -> bool {
    let varies = varying.tangents.iter().any(|tangents| !tangents.is_empty()) || !varying.moved.is_empty();
    !varies && call.terms().all(|(variable, _)| !call.function().column_refs().contains(&variable.column))
}

/// The subqueries of a function that vary along the tangents of the variables.
#[derive(Default)]
struct SubqueryTangents {
    /// With their derivatives.
    tangents: TangentsOf,
    /// The numbers of the variables that they vary with.
    swept: BTreeSet<usize>,
}

/// Returns the subqueries of the function that read the relations of the variables.
fn sweep_along(
    call: &ResolvedCall,
    varying: &VaryingColumns,
    inputs: &mut Inputs,
    context: &mut Context,
) -> Result<SubqueryTangents> {
    let mut along = SubqueryTangents::default();
    if !call.derivative.is_along_tangents() {
        return Ok(along);
    }
    let reads_items = reads_items(call, varying);
    for (number, input, variable, seed) in of_inputs(call) {
        let Some(seed) = seed else { continue };
        let Inputs { plans, by_row, .. } = inputs;
        let (input, names) = (&mut plans[input], &mut context.names);
        let read = ReadBy { variable, reads_items, drops_zeros: false };
        if let Some(tangents) = by_row.tangents_along(call.function(), (read, seed), input, names, call.jvp)? {
            along.tangents.extend(tangents);
            along.swept.insert(number);
        }
    }
    Ok(along)
}
