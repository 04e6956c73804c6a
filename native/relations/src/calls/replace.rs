//! What stands for a call.

use datafusion_common::tree_node::TreeNode;
use datafusion_common::{Result, plan_datafusion_err, plan_err};
use datafusion_expr::{Expr, LogicalPlan, ScalarUDF};
use std::sync::Arc;
use xql_autodiff::vocabulary::columns::columns_read;
use xql_autodiff::vocabulary::messages::{abbreviated, message_of};
use xql_autodiff::vocabulary::refusals::Refused;

use super::branches::branches;
use super::by_row::null_with;
use super::context::Context;
use super::derivative::{DirectionalDerivative, TangentsOf};
use super::identity::{self, Named, Scope};
use super::resolve::{Owner, Resolved};
use super::site::{Site, find};
use crate::forward::Reading;
use crate::vocabulary::relation::Relation;
use crate::vocabulary::source::{beside, origins_of, reads};

/// What stands for a call; nothing if it stays as it is, since it says all by itself or `simplify` says what is wrong.
pub fn replace(call: &Expr, jvp: &Arc<ScalarUDF>, site: &mut Site, context: &mut Context) -> Result<Option<Expr>> {
    let Some(derivative) = DirectionalDerivative::parse(call) else { return Ok(None) };
    let Some(variables) = resolve(&derivative, site, context)? else { return Ok(None) };
    let entered = site.inputs.clone();
    let (mut tangents, moved) = carry(&derivative, &variables, jvp, site, context)?;
    let by_row = sweep(&derivative, &variables, &mut tangents, jvp, site, context)?;
    let mut along = sweep_along(&derivative, &variables, jvp, site, context)?;
    if !moved.is_empty() {
        along.get_or_insert_default().extend(moved);
    }
    let arguments = derivative.arguments(&tangents)?;
    if along.is_none() {
        diagnose(&derivative, &variables, &tangents, jvp, site, context)?;
    }
    if !by_row {
        diagnose_branches(&derivative, &variables, jvp, (site, &entered), context)?;
    }
    diagnose_subqueries(&derivative, &variables, site, context)?;
    if derivative.is_local(&tangents) && !by_row && along.is_none() {
        return Ok(None);
    }
    let emitted = derivative.emit(arguments, along.unwrap_or_default(), jvp, &site.schema())?;
    match derivative.directions.first() {
        // By a cell that is NULL there is no derivative, whether it is read or not.
        Some(direction) if by_row => null_with(direction.variable, emitted).map(Some),
        _ => Ok(Some(emitted)),
    }
}

/// The columns by which the call differentiates; nothing if one of them is none.
fn resolve(derivative: &DirectionalDerivative, site: &Site, context: &Context) -> Result<Option<Vec<Resolved>>> {
    let variables = derivative.directions.iter();
    variables.map(|direction| Resolved::of(direction.variable, derivative.call, site, &context.outer)).collect()
}

/// The columns other than the variable that vary with it, for each variable, with their tangents, and all those whose tangents have
/// the directions in them.
fn carry(
    derivative: &DirectionalDerivative,
    variables: &[Resolved],
    jvp: &Arc<ScalarUDF>,
    site: &mut Site,
    context: &mut Context,
) -> Result<(Vec<TangentsOf>, TangentsOf)> {
    let function = derivative.function;
    let reading =
        if derivative.is_along_directions() { Reading::Together } else { Reading::OwnCell { by_value: false } };
    let mut tangents = vec![];
    let mut moved = vec![];
    for (variable, direction) in variables.iter().zip(&derivative.directions) {
        let found = match variable.owner {
            Owner::Input(input) => site.tangents(
                (&mut context.names, &mut context.grown),
                function,
                (reading, None),
                Some(input),
                &variable.column,
                jvp,
            )?,
            Owner::OuterQuery { query, input } => {
                let mut outer = Site::of(context.outer[query].iter().map(|input| input.as_ref().clone()).collect());
                let column = &variable.column;
                if !outer
                    .tangents(
                        (&mut context.names, &mut context.grown),
                        function,
                        (reading, None),
                        Some(input),
                        column,
                        jvp,
                    )?
                    .is_empty()
                {
                    return plan_err!(
                        "{}: what it reads of the query around it varies with {column}. Take the derivative there",
                        abbreviated(derivative.call)
                    );
                }
                // Columns of this query must not be computed from it either, which the carrier finds out.
                site.tangents(
                    (&mut context.names, &mut context.grown),
                    function,
                    (reading, None),
                    None,
                    &variable.named,
                    jvp,
                )?
            }
        };
        let seed = direction.seed.filter(|seed| derivative.is_along_directions() && !columns_read(seed).is_empty());
        if let (Owner::Input(input), Some(seed)) = (variable.owner, seed)
            && !found.is_empty()
            && rows_mix(&site.inputs[input])?
        {
            // Other rows may move along other directions.
            let along = beside(seed, &variable.column, &site.inputs[input])?;
            let (names, reading) = ((&mut context.names, &mut context.grown), (Reading::Together, Some(&along)));
            moved.extend(site.tangents(names, function, reading, Some(input), &variable.column, jvp)?);
            tangents.push(vec![]);
        } else {
            tangents.push(found);
        }
    }
    Ok((tangents, moved))
}

/// Whether a value in one row of a plan may be computed from other rows.
fn rows_mix(plan: &LogicalPlan) -> Result<bool> {
    plan.exists(|node| Ok(matches!(node, LogicalPlan::Window(_))))
}

/// Adds the subqueries of the function that read the relation of a variable, with their derivatives by the row's own cell. Says
/// whether there are any.
fn sweep(
    derivative: &DirectionalDerivative,
    variables: &[Resolved],
    tangents: &mut [TangentsOf],
    jvp: &Arc<ScalarUDF>,
    site: &mut Site,
    context: &mut Context,
) -> Result<bool> {
    let mut by_row = false;
    if derivative.is_along_directions() {
        return Ok(by_row);
    }
    for (variable, tangents) in variables.iter().zip(tangents) {
        let Owner::Input(number) = variable.owner else { continue };
        let input = &mut site.inputs[number];
        let swept = site.by_row.tangents(derivative.function, &variable.column, input, &mut context.names, jvp)?;
        let Some(swept) = swept else { continue };
        by_row = true;
        tangents.extend(swept);
    }
    Ok(by_row)
}

/// The subqueries of the function that read the relation of a variable, with their derivatives along the directions in which its
/// cells move. None if there are none.
fn sweep_along(
    derivative: &DirectionalDerivative,
    variables: &[Resolved],
    jvp: &Arc<ScalarUDF>,
    site: &mut Site,
    context: &mut Context,
) -> Result<Option<TangentsOf>> {
    let mut along: Option<TangentsOf> = None;
    if !derivative.is_along_directions() {
        return Ok(along);
    }
    for (variable, direction) in variables.iter().zip(&derivative.directions) {
        let (Owner::Input(number), Some(seed)) = (variable.owner, direction.seed) else { continue };
        let input = &mut site.inputs[number];
        let moved = (&variable.column, seed);
        let swept = site.by_row.tangents_along(derivative.function, moved, input, &mut context.names, jvp)?;
        if let Some(swept) = swept {
            along.get_or_insert_default().extend(swept);
        }
    }
    Ok(along)
}

/// The error for a variable that the function does not depend on, if it depends on another reference to the same column.
fn diagnose(
    derivative: &DirectionalDerivative,
    variables: &[Resolved],
    tangents: &[TangentsOf],
    jvp: &ScalarUDF,
    site: &Site,
    context: &Context,
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
            Owner::OuterQuery { query, .. } => Scope::outer(&context.outer[query], query),
        };
        Named::of(variable.column.clone(), scope)
    });
    let named = named.collect::<Result<Vec<_>>>()?;
    let is_operator = |function: &ScalarUDF| (context.recognize)(function).is_some() || function == jvp;
    for variable in independent {
        let here = Scope::here(&site.before);
        identity::check(derivative.call, function, variable, &named, &here, &context.iterated, &is_operator)
            .map_err(|error| Refused::Variable.mark(error))?;
    }
    Ok(())
}

/// The error for a subquery that reads the relation of a variable and has not become a column, as in the condition of a join.
fn diagnose_subqueries(
    derivative: &DirectionalDerivative,
    variables: &[Resolved],
    site: &Site,
    context: &Context,
) -> Result<()> {
    for variable in variables {
        let input = match variable.owner {
            Owner::Input(input) => &site.before[input],
            Owner::OuterQuery { query, input } => &context.outer[query][input],
        };
        let Some(index) = input.schema().maybe_index_of_column(&variable.column) else { continue };
        for origin in origins_of(input, index)? {
            if reads(derivative.function, &Relation::named(origin))? {
                return plan_err!(
                    "{}: a subquery in it reads the rows that {} comes from, and its derivative by them is not known where the \
                     call is in the condition of a join or in a correlated subquery. Compute the call in a CTE over one table",
                    abbreviated(derivative.call),
                    variable.named
                );
            }
        }
    }
    Ok(())
}

/// The error that the call would be over one branch alone of a UNION ALL that a variable comes from.
///
/// `entered` is what the node read before this call asked for tangents: a call in it may have put its own there, which it reads.
fn diagnose_branches(
    derivative: &DirectionalDerivative,
    variables: &[Resolved],
    jvp: &Arc<ScalarUDF>,
    (site, entered): (&Site, &[LogicalPlan]),
    context: &mut Context,
) -> Result<()> {
    let read = columns_read(derivative.call);
    let added = read.iter().any(|column| find(&site.before, column).is_none() && find(entered, column).is_some());
    let before = if added { entered } else { &site.before };
    for variable in variables {
        let Owner::Input(number) = variable.owner else { continue };
        let input = &before[number];
        let index = input.schema().maybe_index_of_column(&variable.column);
        let (Some(index), false) = (index, derivative.function.exists(|part| Ok(variable.is(part, site)))?) else {
            continue;
        };
        for (branch, position) in branches(input, index)?.into_iter().zip(1..) {
            let mut inputs = before.to_vec();
            inputs[number] = branch;
            let names = context.names.clone();
            replace(derivative.call, jvp, &mut Site::of(inputs), context)
                .map_err(|error| plan_datafusion_err!("in branch {position} of a UNION ALL: {}", message_of(error)))?;
            context.names = names;
        }
    }
    Ok(())
}
