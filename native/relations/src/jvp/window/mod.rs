//! Window functions.
//!
//! Where all rows of the variable move together, a function has its formula, as an aggregate has. `own_row` has the derivative by the
//! cell of the variable that each row has, for which `cells` numbers these and `nested_windows` finds the windows that a window reads.

pub mod cells;
pub mod functions;
mod nested_windows;
mod own_row;

use datafusion_common::{Result, plan_err};
use datafusion_expr::{LogicalPlan, Window};
use std::sync::Arc;
use xql_autodiff::vocabulary::messages::abbreviate;

use super::direction::Variable;
use super::propagate::{NodeRequest, Perturb, Propagation, WithTangents};
use crate::aggregate_rules::{AggregateRows, arguments};
use crate::tangents::linearize::{null_with_column, of_type};
use crate::tangents::tangent::{Linearized, Tangent};
use crate::vocabulary::names::with_columns;
use functions::{Windows, over_columns, with_windows_over_columns};

/// Propagates tangents through window functions. The columns of the input keep their tangents. Partitions and orders
/// count as constant, like conditions.
pub fn window(propagation: &mut Propagation, window: Window, requests: &[NodeRequest]) -> Result<WithTangents> {
    let by_rows = |request: &&(usize, &NodeRequest)| {
        request.1.output.perturb != Perturb::AllRows && matches!(request.1.inputs[0], Variable::Column(_))
    };
    let active: Vec<_> = requests.iter().enumerate().filter(|(_, request)| request.is_active()).collect();
    let Some((direction, request)) = active.iter().find(by_rows) else {
        let windows = Windows::try_new(window, propagation.names)?;
        return of_all_rows(propagation, &windows, requests);
    };
    if active.len() > 1 {
        return propagation.propagate_one_by_one(LogicalPlan::Window(window), requests);
    }
    let windows = Windows::try_new(window, propagation.names)?;
    match request.output.perturb {
        _ if !propagation.recursions.is_empty() => of_iterations(propagation, windows, requests),
        Perturb::OwnRowFrozenWindows => fixed(propagation, windows, requests),
        Perturb::OwnRow { by_value } => own_row::by_own_cell(propagation, *direction, &windows, request, by_value),
        Perturb::AllRows => of_all_rows(propagation, &windows, requests),
    }
}

/// Propagates tangents through window functions if all rows of the variable move together.
///
/// ```text
/// WindowAggr: windowExpr=[[sum(w * x) ORDER BY [id] AS s]]
///   TableScan: t
/// ```
///
/// becomes
///
/// ```text
/// Projection: w, x, id, ∂argument of sum, s, ∂sum, ∂sum AS ∂s/∂w
///   WindowAggr: windowExpr=[[sum(w * x) ORDER BY [id] AS s, sum(∂argument of sum) ORDER BY [id] AS ∂sum]]
///     Projection: w, x, id, jvp(w * x, w, 1) AS ∂argument of sum
///       TableScan: t
/// ```
fn of_all_rows(propagation: &mut Propagation, windows: &Windows, requests: &[NodeRequest]) -> Result<WithTangents> {
    let Windows { input, functions, shown } = windows;
    let to_input = propagation.directions.iter().zip(requests).map(|(direction, request)| {
        let wanted = &request.output.columns;
        let mut below = windows.passed_on(wanted);
        let read = windows.wanted(wanted).flat_map(|(_, function)| arguments(function));
        below.extend(direction.needs(input.schema(), request.inputs[0], read)?);
        Ok(request.of_input(0, below))
    });
    let to_input = to_input.collect::<Result<_>>()?;
    let WithTangents { plan, tangents: mut all } = propagation.propagate(input.clone(), to_input)?;
    let mut computed = functions.clone();
    let (mut ranks, mut exprs) = (vec![], vec![]);
    for ((direction, request), tangents) in propagation.directions.iter().zip(requests).zip(&mut all) {
        let below = tangents.clone();
        for (index, function) in windows.wanted(&request.output.columns) {
            let mut rows = AggregateRows {
                columns: input.schema(),
                tangents: &below,
                with_tangents: plan.schema(),
                jvp: &direction.jvp,
                variable: &direction.variable,
                names: propagation.names,
                keys: &[],
                ranks: &mut ranks,
                computed: &mut computed,
            };
            let tangent = match rows.guarded(function)? {
                Some(mut guarded) => {
                    let field = shown.field(index);
                    let data_type = direction.tangent_type(field.data_type());
                    guarded.tangent = of_type(null_with_column(guarded.tangent, shown, index)?, &data_type);
                    direction.add_guarded(guarded, (field.name(), data_type), &mut exprs, propagation.names)?
                }
                None => Tangent::Zero,
            };
            tangents.set(index, tangent);
        }
    }
    let mut read = vec![];
    for added in computed.iter_mut().skip(functions.len()) {
        over_columns(added, &mut read, propagation.names);
    }
    let plan = with_windows_over_columns(plan, ranks, propagation.names)?;
    let plan = LogicalPlan::Window(Window::try_new(computed, Arc::new(with_columns(plan, read)?))?);
    Ok(WithTangents { plan: with_columns(plan, exprs)?, tangents: all })
}

/// Propagates the tangents of the input's columns, and treats the values of window functions as constant.
fn fixed(propagation: &mut Propagation, windows: Windows, requests: &[NodeRequest]) -> Result<WithTangents> {
    let to_input =
        requests.iter().map(|request| request.of_input(0, windows.passed_on(&request.output.columns))).collect();
    let propagated = propagation.propagate(windows.input, to_input)?;
    let plan = LogicalPlan::Window(Window::try_new(windows.functions, Arc::new(propagated.plan))?);
    Ok(WithTangents { plan, tangents: propagated.tangents })
}

/// Functions of what varies over the rows of one iteration are refused: which cell these rows have is not carried along.
fn of_iterations(propagation: &mut Propagation, windows: Windows, requests: &[NodeRequest]) -> Result<WithTangents> {
    let input = &windows.input;
    let to_input = propagation.directions.iter().zip(requests).map(|(direction, request)| {
        let read = windows.wanted(&request.output.columns).flat_map(|(_, function)| arguments(function));
        Ok(request.of_input(0, direction.needs(input.schema(), request.inputs[0], read)?))
    });
    let to_input = to_input.collect::<Result<_>>()?;
    let propagated = propagation.propagate(input.clone(), to_input)?;
    for ((direction, request), tangents) in propagation.directions.iter().zip(requests).zip(&propagated.tangents) {
        for (_, function) in windows.wanted(&request.output.columns) {
            for argument in arguments(function) {
                if direction.linearize(argument, input.schema(), tangents)? != Linearized::Known(Tangent::Zero) {
                    return plan_err!(
                        "{} in a recursive query varies with {} of the rows that it starts with, and iterations do not carry \
                         the derivative by the row's own. Write jvp(..., {}, 1), in which all rows move",
                        abbreviate(function),
                        direction.variable,
                        direction.variable
                    );
                }
            }
        }
    }
    fixed(propagation, windows, requests)
}
