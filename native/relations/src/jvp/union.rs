//! Unions.

use datafusion_common::{Column, DFSchema, Result};
use datafusion_expr::{Expr, LogicalPlan, Projection, Union};
use std::sync::Arc;

use super::direction::Direction;
use super::propagate::{NodeRequest, Propagation, WithTangents};
use crate::plan::union::widened_union;
use crate::tangents::tangent::{self, Inactive, Linearized, Tangent, Tangents};
use crate::vocabulary::names::columns;

/// A tangent that all inputs have a column for.
struct Added {
    direction: usize,
    index: usize,
    name: String,
    /// What the column is called that says where the tangent is inactive, if one of the inputs says so.
    inactive: Option<String>,
}

/// Propagates tangents through a union. A column has a tangent if it varies in one of the inputs.
///
/// ```text
/// Union
///   Projection: p.w, p.w * d.x AS q
///   Projection: p.w, 3 AS q
/// ```
///
/// becomes
///
/// ```text
/// Union
///   Projection: w, q, 0 AS ∂inactive, ∂q/∂w AS ∂q/∂w #2
///     Projection: p.w, p.w * d.x AS q, jvp(p.w * d.x, p.w, 1) AS ∂q/∂w
///   Projection: w, q, 1 AS ∂inactive, 0 AS ∂q/∂w #2
///     Projection: p.w, 3 AS q
/// ```
pub fn union(propagation: &mut Propagation, union: &Union, requests: &[NodeRequest]) -> Result<WithTangents> {
    let mut inputs = vec![];
    for (number, input) in union.inputs.iter().enumerate() {
        let to_input =
            requests.iter().map(|request| request.of_input(number, request.output.columns.clone())).collect();
        inputs.push(propagation.propagate(input.as_ref().clone(), to_input)?);
    }
    let mut all = vec![];
    let mut added = vec![];
    for (direction, request) in requests.iter().enumerate() {
        let mut tangents = Tangents::default();
        for index in &request.output.columns {
            let all_are = |tangent| inputs.iter().all(|input| input.tangents[direction].get(*index) == tangent);
            if all_are(Tangent::One) {
                tangents.set(*index, Tangent::One);
            } else if !all_are(Tangent::Zero) {
                let Direction { variable, .. } = &propagation.directions[direction];
                let field = union.schema.field(*index);
                let name = propagation.names.tangent(field.name(), variable);
                // Of an input in which it is a constant too.
                let of_inputs = || inputs.iter().map(|input| input.tangents[direction].get(*index));
                let has_inactive = of_inputs().any(|tangent| tangent.has_inactive() || tangent == Tangent::Zero);
                let inactive = has_inactive.then(|| propagation.names.part("inactive"));
                let inactive_column = inactive.clone().map(|name| Inactive {
                    column: Column::new_unqualified(name),
                    data_type: propagation.directions[direction].tangent_type(field.data_type()),
                });
                let column = Column::new_unqualified(name.clone());
                tangents.set(*index, Tangent::Column(tangent::TangentColumn { column, inactive: inactive_column }));
                added.push(Added { direction, index: *index, name, inactive });
            }
        }
        all.push(tangents);
    }
    if added.is_empty() {
        return Ok(WithTangents { plan: LogicalPlan::Union(union.clone()), tangents: all });
    }
    let widened = union.inputs.iter().zip(inputs).map(|(before, input)| {
        let input = with_tangents(before.schema(), input, &union.schema, &added, &propagation.directions)?;
        Ok(Arc::new(input))
    });
    Ok(WithTangents { plan: widened_union(union, widened.collect::<Result<_>>()?)?, tangents: all })
}

/// Returns an input with the columns that it had in their order under the names of the union, and after them the tangents.
///
/// DataFusion 54 reads the inputs of a union in a union by the names of the first of them.
fn with_tangents(
    before: &DFSchema,
    input: WithTangents,
    named: &DFSchema,
    added: &[Added],
    directions: &[Direction],
) -> Result<LogicalPlan> {
    let own = columns(before);
    let mut exprs = vec![];
    for (column, (table, field)) in own.iter().zip(named.iter()) {
        let is_named = matches!(column, Expr::Column(column) if column.name == *field.name());
        exprs.push(match is_named {
            true => column.clone(),
            false => column.clone().alias_qualified(table.cloned(), field.name()),
        });
    }
    for Added { direction, index, name, inactive } in added {
        let tangent = input.tangents[*direction].get(*index);
        if let Some(name) = inactive {
            exprs.push(tangent.inactive()?.alias(name.clone()));
        }
        let tangent = Linearized::Known(tangent);
        let tangent = directions[*direction].column(&tangent, &own[*index], before, input.plan.schema())?;
        exprs.push(tangent.alias(name.clone()));
    }
    Ok(LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(input.plan))?))
}
