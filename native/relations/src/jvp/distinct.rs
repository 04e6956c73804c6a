//! DISTINCT and DISTINCT ON.

use datafusion_common::Result;
use datafusion_expr::{Aggregate, Distinct, DistinctOn, Expr, ExprSchemable, LogicalPlan, Projection};
use std::sync::Arc;

use super::equal_tangents::{EqualTangents, InRows};
use super::expressions::Expressions;
use super::hoist_volatile::VolatileColumns;
use super::propagate::{NodeRequest, Propagation, WithTangents};
use crate::tangents::tangent::{Tangent, Tangents};
use crate::vocabulary::names::columns;

/// Propagates tangents through DISTINCT.
pub fn distinct(propagation: &mut Propagation, distinct: Distinct, requests: &[NodeRequest]) -> Result<WithTangents> {
    match distinct {
        Distinct::All(input) => all(propagation, input, requests),
        Distinct::On(on) => first_of_each(propagation, on, requests),
    }
}

/// Propagates tangents through DISTINCT. Equal rows become one, whose tangent is that of all of them. If their tangents
/// differ, there is no derivative, and the tangent is NaN.
///
/// ```text
/// Distinct:
///   Projection: p.w, p.w * d.x AS q
/// ```
///
/// becomes
///
/// ```text
/// Projection: w, q, CASE WHEN ∂q low + 0 != ∂q high + 0 THEN NaN ELSE ∂q low END AS ∂q/∂w #2
///   Aggregate: groupBy=[[w, q]], aggr=[[min(∂q/∂w) AS ∂q low, max(∂q/∂w) AS ∂q high]]
///     Projection: p.w, p.w * d.x AS q, jvp(p.w * d.x, p.w, 1) AS ∂q/∂w
/// ```
fn all(propagation: &mut Propagation, input: Arc<LogicalPlan>, requests: &[NodeRequest]) -> Result<WithTangents> {
    let to_input = requests.iter().map(|request| request.passed_on().by_value()).collect();
    let propagated = propagation.propagate(input.as_ref().clone(), to_input)?;
    let mut agreements = EqualTangents::default();
    let mut agreed = vec![];
    for (direction, tangents) in propagation.directions.iter().zip(&propagated.tangents) {
        let mut of_rows = Tangents::default();
        for (index, tangent) in tangents.iter() {
            let tangent = match tangent {
                Tangent::Column(of_rows) => {
                    let tangent = Expr::Column(of_rows.column.clone());
                    let data_type = tangent.get_type(propagated.plan.schema())?;
                    let column = input.schema().field(index).name();
                    let inactive = of_rows.condition();
                    let in_rows = InRows { tangent, inactive, rolled_up: None, data_type, column };
                    agreements.add(in_rows, direction, propagation.names)?
                }
                constant => constant.clone(),
            };
            of_rows.set(index, tangent);
        }
        agreed.push(of_rows);
    }
    if agreements.exprs.is_empty() {
        return Ok(WithTangents { plan: LogicalPlan::Distinct(Distinct::All(input)), tangents: agreed });
    }
    let keys = columns(input.schema());
    let aggregate = Aggregate::try_new(Arc::new(propagated.plan), keys.clone(), agreements.aggregates)?;
    let exprs = keys.into_iter().chain(agreements.exprs).collect();
    let plan = Projection::try_new(exprs, Arc::new(LogicalPlan::Aggregate(aggregate)))?;
    Ok(WithTangents { plan: LogicalPlan::Projection(plan), tangents: agreed })
}

/// Propagates tangents through DISTINCT ON: the rows that it keeps also keep their tangents.
///
/// ```text
/// DistinctOn: on_expr=[[d.g]], select_expr=[[p.w, p.w * d.x AS q]]
/// ```
///
/// becomes
///
/// ```text
/// DistinctOn: on_expr=[[d.g]], select_expr=[[p.w, p.w * d.x AS q, jvp(p.w * d.x, p.w, 1) AS ∂q/∂w]]
/// ```
fn first_of_each(propagation: &mut Propagation, on: DistinctOn, requests: &[NodeRequest]) -> Result<WithTangents> {
    let DistinctOn { on_expr, select_expr, sort_expr, input, .. } = on;
    // DataFusion evaluates the order for each selected column, so its volatile parts are computed below.
    let mut draws = VolatileColumns::new(propagation.names);
    let on_expr = on_expr.into_iter().map(|on| draws.ordering(on)).collect();
    let sort_expr = sort_expr.map(|order| draws.order(order));
    let input = draws.below(input)?;
    let mut expressions = Expressions::new(select_expr, input.schema(), requests)?;
    let to_input = expressions.input_requests(&propagation.directions, requests)?;
    let propagated = propagation.propagate(Arc::unwrap_or_clone(input), to_input)?;
    let tangents = expressions.add_tangents(&propagation.directions, requests, &propagated, propagation.names)?;
    let on = DistinctOn::try_new(on_expr, expressions.exprs, sort_expr, Arc::new(propagated.plan))?;
    Ok(WithTangents { plan: LogicalPlan::Distinct(Distinct::On(on)), tangents })
}
