//! Projections.

use datafusion_common::{DFSchema, Result};
use datafusion_expr::{LogicalPlan, Projection};
use std::sync::Arc;

use super::expressions::Expressions;
use super::propagate::{NodeRequest, Propagation, WithTangents};

/// Propagates tangents through a projection. The tangent of an expression is a further expression.
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
pub fn projection(
    propagation: &mut Propagation,
    projection: Projection,
    requests: &[NodeRequest],
) -> Result<WithTangents> {
    let Projection { expr, input, schema, .. } = projection;
    let mut expressions = Expressions::new(expr, input.schema(), requests)?;
    let to_input = expressions.input_requests(&propagation.directions, requests)?;
    let propagated = propagation.propagate(Arc::unwrap_or_clone(input), to_input)?;
    let tangents = expressions.add_tangents(&propagation.directions, requests, &propagated, propagation.names)?;
    let fields = schema.iter().map(|(table, field)| (table.cloned(), Arc::clone(field)));
    let dependencies = schema.functional_dependencies().clone();
    let schema = DFSchema::new_with_metadata(fields.chain(expressions.added).collect(), schema.metadata().clone())?;
    let schema = Arc::new(schema.with_functional_dependencies(dependencies)?);
    let plan = Projection::try_new_with_schema(expressions.exprs, Arc::new(propagated.plan), schema)?;
    Ok(WithTangents { plan: LogicalPlan::Projection(plan), tangents })
}
