//! Forward over reverse: tangents of the iterations of a recursive query, and of their adjoint.

use arrow::datatypes::{DataType, Field};
use datafusion_common::{Column, Result, ScalarValue, internal_err, plan_err};
use datafusion_expr::{Expr, ExprSchemable, LogicalPlan, Projection, lit};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use xql_autodiff::vocabulary::types::can_vary;

use super::direction::{Direction, Variable};
use super::propagate::{ColumnRequest, NodeRequest, Perturb, Propagation, WithTangents};
use super::shared_tangents::VariableOrigin;
use crate::shared_relation::IterationsNode;
use crate::tangents::tangent::{Linearized, Tangents};
use crate::vocabulary::names::columns;

/// Propagates tangents through the iterations that a gradient by row reads, by a variable with one value. The rows
/// before an iteration get tangents as further columns. So do the cotangents of the adjoint, and the tangent of a sum
/// of cotangents is the sum of their tangents:
///
/// ```text
/// Iterations: r                              Iterations: r
///   Projection: k, val, ∂row                   Projection: k, val, ∂val/∂e, ∂row
///   Projection: k, val, ∂row            ->     Projection: k, val, ∂val/∂e, ∂row
///     TableScan: ∂before [k, val]                TableScan: ∂before [k, val, ∂val/∂e]
/// ```
pub fn iterations(propagation: &mut Propagation, plan: LogicalPlan, requests: &[NodeRequest]) -> Result<WithTangents> {
    let active: Vec<_> = (0..requests.len()).filter(|number| requests[*number].is_active()).collect();
    let [direction] = active[..] else { return propagation.propagate_one_by_one(plan, requests) };
    let Some(iterations) = IterationsNode::from_node(&plan) else {
        return internal_err!("a node of iterations is none");
    };
    let Some(cell) = propagation.directions[direction].cell.clone() else {
        return plan_err!(
            "{} is a recursive query that a gradient by row passes through, and derivatives by {} cannot pass through that gradient",
            iterations.query(),
            propagation.directions[direction].variable
        );
    };
    propagation.shared.check_unrolled(iterations.query(), &propagation.directions[direction].variable)?;
    let mut all = vec![Tangents::default(); requests.len()];
    let (plan, tangents) = match iterations.inputs() {
        [start, step] => tape(propagation, (direction, cell), iterations, [start, step])?,
        [tape, outside, step] => adjoint(propagation, (direction, cell), iterations, [tape, outside, step])?,
        _ => return internal_err!("the iterations of {} have lost an input", iterations.query()),
    };
    all[direction] = tangents;
    Ok(WithTangents { plan, tangents: all })
}

/// Returns a request for the tangents of these columns, by a variable that moves wherever it is read.
fn everywhere(columns: impl IntoIterator<Item = usize>) -> ColumnRequest {
    ColumnRequest { variable: Variable::Everywhere, perturb: Perturb::AllRows, columns: columns.into_iter().collect() }
}

/// Returns the iterations with tangents of the columns that vary in one of them.
fn tape(
    propagation: &mut Propagation,
    (direction, cell): (usize, VariableOrigin),
    iterations: &IterationsNode,
    [start, step]: [&LogicalPlan; 2],
) -> Result<(LogicalPlan, Tangents)> {
    let fields = iterations.given().schema().fields();
    let wanted: Vec<_> = (0..fields.len()).filter(|index| can_vary(fields[*index].data_type())).collect();
    let (first, of_first) = propagation.propagate_in(direction, start.clone(), everywhere(wanted.iter().copied()))?;
    let mut varying: BTreeSet<_> = of_first.iter().map(|(index, _)| index).collect();
    loop {
        let before = (propagation.names.clone(), propagation.shared.clone());
        let further = varying.iter().map(|index| tangent_field(propagation, direction, &fields[*index]));
        let given = iterations.given().with_further(further.collect::<Vec<_>>());
        let tangents = varying.iter().copied().zip(fields.len()..).collect();
        propagation.shared.add_given(cell.clone(), given.clone(), tangents);
        let (next, of_next) = propagation.propagate_in(direction, step.clone(), everywhere(wanted.iter().copied()))?;
        let all: BTreeSet<_> = of_next.iter().map(|(index, _)| index).chain(varying.iter().copied()).collect();
        if all != varying {
            (*propagation.names, *propagation.shared) = before;
            varying = all;
            continue;
        }
        let inputs = [(start, first, of_first), (step, next, of_next)];
        let along = &propagation.directions[direction];
        let inputs = inputs.map(|(before, with_tangents, tangents)| {
            insert_tangents(along, before, with_tangents, &tangents, &varying)
        });
        let [first, next] = inputs;
        let mut schema = iterations.fields();
        let mut tangents = Tangents::default();
        for index in varying {
            let field = tangent_field(propagation, direction, &fields[index]);
            tangents.set(index, Column::new_unqualified(field.name()).into());
            schema.push(Arc::new(field));
        }
        return Ok((iterations.with(given, vec![first?, next?], schema)?, tangents));
    }
}

/// Returns a column for the tangents of a column.
fn tangent_field(propagation: &mut Propagation, direction: usize, field: &Field) -> Field {
    let along = &propagation.directions[direction];
    let name = propagation.names.tangent(field.name(), &along.variable);
    Field::new(name, along.tangent_type(field.data_type()), field.is_nullable())
}

/// Rows with the tangents of these columns before their numbers, which are the last column.
fn insert_tangents(
    along: &Direction,
    before: &LogicalPlan,
    with_tangents: LogicalPlan,
    tangents: &Tangents,
    varying: &BTreeSet<usize>,
) -> Result<LogicalPlan> {
    let mut exprs = columns(before.schema());
    let number = exprs.pop();
    for index in varying {
        // Constants of one value have one name. Tangents that have been propagated before stay in their places.
        let name = format!("∂tangent {}", exprs.len());
        exprs.push(tangent(along, before, &with_tangents, tangents, *index)?.alias(name));
    }
    exprs.extend(number);
    Ok(LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(with_tangents))?))
}

/// Returns the tangent of a column, NULL where that is.
fn tangent(
    along: &Direction,
    before: &LogicalPlan,
    with_tangents: &LogicalPlan,
    tangents: &Tangents,
    index: usize,
) -> Result<Expr> {
    let known = Linearized::Known(tangents.get(index));
    let primal = Expr::Column(Column::from(before.schema().qualified_field(index)));
    along.column(&known, &primal, before.schema(), with_tangents.schema())
}

/// Returns what goes back through the iterations, with the tangents of all cotangents.
///
/// Contributions are of as many cotangents as the widest has, and those that are given have the same places, so that sums are
/// carried on as they are.
fn adjoint(
    propagation: &mut Propagation,
    (direction, cell): (usize, VariableOrigin),
    iterations: &IterationsNode,
    [tape, outside, step]: [&LogicalPlan; 3],
) -> Result<(LogicalPlan, Tangents)> {
    let fields = tape.schema().fields();
    let of_tape = (0..fields.len()).filter(|index| can_vary(fields[*index].data_type()));
    let (tape, _) = propagation.propagate_in(direction, tape.clone(), everywhere(of_tape))?;
    let widest = iterations.fields().len() - CONTRIBUTED;
    let known = iterations.given().schema().fields().len() - GIVEN;
    let wanted = GIVEN..GIVEN + known;
    let (around, of_around) = propagation.propagate_in(direction, outside.clone(), everywhere(wanted.clone()))?;
    let mut further = |count: usize| -> Vec<_> {
        (0..count).map(|_| Field::new(propagation.names.part("cotangent"), DataType::Float64, true)).collect()
    };
    let given = iterations.given().with_further(further(widest - known + widest));
    let schema: Vec<_> = iterations.fields().into_iter().chain(further(widest).into_iter().map(Arc::new)).collect();
    let places: BTreeMap<_, _> = wanted.map(|index| (index, index + widest)).collect();
    propagation.shared.add_given(cell, given.clone(), places);
    let contributions = CONTRIBUTED..CONTRIBUTED + widest;
    let (next, of_next) = propagation.propagate_in(direction, step.clone(), everywhere(contributions.clone()))?;
    let along = &propagation.directions[direction];
    let around = padded(along, outside, around, &of_around, (GIVEN, widest))?;
    let next = padded(along, step, next, &of_next, (CONTRIBUTED, widest))?;
    let mut tangents = Tangents::default();
    for (index, field) in contributions.zip(&schema[CONTRIBUTED + widest..]) {
        tangents.set(index, Column::new_unqualified(field.name()).into());
    }
    Ok((iterations.with(given, vec![tape, around, next], schema)?, tangents))
}

/// How many columns stand before cotangents that are given, and before those that are contributed.
const GIVEN: usize = 1;
const CONTRIBUTED: usize = 2;

/// Cotangents behind the first columns, as many as the widest has, and after them their tangents.
fn padded(
    along: &Direction,
    before: &LogicalPlan,
    with_tangents: LogicalPlan,
    tangents: &Tangents,
    (first, widest): (usize, usize),
) -> Result<LogicalPlan> {
    let none = || lit(ScalarValue::Float64(None));
    let mut exprs = columns(before.schema());
    let known = first..exprs.len();
    let missing = || (known.len()..widest).map(|_| none());
    exprs.extend(missing());
    for index in known.clone() {
        exprs.push(tangent(along, before, &with_tangents, tangents, index)?);
    }
    exprs.extend(missing());
    let exprs = exprs.into_iter().enumerate().map(|(number, expr)| match expr {
        Expr::Column(column) if number < known.end => Ok(Expr::Column(column)),
        expr => Ok(expr.cast_to(&DataType::Float64, with_tangents.schema())?.alias(format!("∂padded {number}"))),
    });
    let exprs = exprs.collect::<Result<_>>()?;
    Ok(LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(with_tangents))?))
}
