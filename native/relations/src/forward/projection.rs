//! Projections.

use datafusion_common::{DFSchema, Result};
use datafusion_expr::{Expr, LogicalPlan, Projection};
use std::sync::Arc;
use xql_autodiff::vocabulary::columns::is_volatile;

use super::carrier::{Carried, Carrier, Request};
use super::draws::{Draws, draws_whole};
use super::expressions::Expressions;
use crate::vocabulary::expressions::unaliased;
use crate::vocabulary::names::Names;

/// What an expression computes has a tangent, which is one more expression.
///
/// ```text
/// Projection: p.w, p.b, p.w * d.x + p.b AS q
/// ```
///
/// becomes
///
/// ```text
/// Projection: p.w, p.b, p.w * d.x + p.b AS q, jvp(p.w * d.x + p.b, p.w, 1) AS ∂q/∂w, jvp(p.w * d.x + p.b, p.b, 1) AS ∂q/∂b
/// ```
pub fn projection(carrier: &mut Carrier, projection: Projection, requests: &[Request]) -> Result<Carried> {
    let Projection { expr, input, schema, .. } = drawn_before(projection, requests, carrier.names)?;
    let mut expressions = Expressions::new(expr, input.schema(), requests)?;
    let asked = expressions.asked(&carrier.directions, requests)?;
    let carried = carrier.carry(Arc::unwrap_or_clone(input), asked)?;
    let tangents = expressions.add_tangents(&carrier.directions, requests, &carried, carrier.names)?;
    let fields = schema.iter().map(|(table, field)| (table.cloned(), Arc::clone(field)));
    let dependencies = schema.functional_dependencies().clone();
    let schema = DFSchema::new_with_metadata(fields.chain(expressions.added).collect(), schema.metadata().clone())?;
    let schema = Arc::new(schema.with_functional_dependencies(dependencies)?);
    let plan = Projection::try_new_with_schema(expressions.exprs, Arc::new(carried.plan), schema)?;
    Ok(Carried { plan: LogicalPlan::Projection(plan), tangents })
}

/// The projection over an input in which what wanted expressions draw has been drawn, since their tangents must not draw it again.
///
/// ```text
/// Projection: w, CASE WHEN random() < 0.5 THEN 0 ELSE w END AS q        Projection: w, CASE WHEN ∂drawn < 0.5 THEN 0 ELSE w END AS q
///   TableScan: t                                                          Projection: w, random() AS ∂drawn
///                                                                           TableScan: t
/// ```
fn drawn_before(projection: Projection, requests: &[Request], names: &mut Names) -> Result<Projection> {
    let is_drawn = |index: usize, expr: &Expr| {
        let is_wanted = requests.iter().any(|request| request.asked.wanted.contains(&index));
        is_wanted && is_volatile(expr) && !draws_whole(unaliased(expr))
    };
    if !projection.expr.iter().enumerate().any(|(index, expr)| is_drawn(index, expr)) {
        return Ok(projection);
    }
    let Projection { expr, input, schema, .. } = projection;
    let mut draws = Draws::new(names);
    let exprs = expr.into_iter().enumerate();
    let exprs = exprs.map(|(index, expr)| if is_drawn(index, &expr) { draws.expression(expr) } else { Ok(expr) });
    let exprs = exprs.collect::<Result<_>>()?;
    Projection::try_new_with_schema(exprs, draws.below(input)?, schema)
}
