//! Recursive queries.

use arrow::datatypes::{DataType, Field};
use datafusion_common::{DFSchemaRef, Result, internal_err, plan_err};
use datafusion_expr::{LogicalPlan, RecursiveQuery};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::direction::{Direction, Variable};
use super::propagate::{ColumnRequest, NodeRequest, Propagation, Recursion, TangentFields, WithTangents};
use crate::plan::recursion::{Term, WorkTable};
use crate::shared_relation::inline_for_analysis;
use crate::tangents::tangent::{Linearized, Tangent, Tangents};
use crate::vocabulary::names::columns;
use crate::vocabulary::origin::in_work_table;

/// A column, in a direction.
type InDirection = (usize, usize);

/// Propagates tangents through a recursive query, by a variable that every iteration passes on unchanged. The tangents
/// of the columns that vary with it become further columns of the recursive query.
///
/// ```text
/// RecursiveQuery: is_distinct=false
///   Projection: 0 AS s, p.w, 1 AS q
///     TableScan: p
///   Projection: o.s + 1, o.w, o.q + o.w * o.q
///     TableScan: o
/// ```
///
/// becomes
///
/// ```text
/// RecursiveQuery: is_distinct=false
///   Projection: s, w, q, 0 AS ∂q/∂w
///     Projection: 0 AS s, p.w, 1 AS q
///       TableScan: p
///   Projection: s, w, q, ∂q AS ∂q/∂w
///     Projection: o.s + 1 AS s, o.w, o.q + o.w * o.q AS q, jvp(o.q + o.w * o.q, o.w, 1, o.q, o.∂q/∂w) AS ∂q
///       TableScan: o projection=[s, w, q, ∂q/∂w]
/// ```
pub fn recursive_query(
    propagation: &mut Propagation,
    query: RecursiveQuery,
    requests: &[NodeRequest],
) -> Result<WithTangents> {
    let passed_on = passed_on(&query, &propagation.directions, requests)?;
    let variable = |direction: usize| requests[direction].output.variable;
    let mut wanted: BTreeSet<InDirection> = BTreeSet::new();
    for direction in passed_on {
        wanted.extend(requests[direction].output.columns.iter().map(|index| (direction, *index)));
    }
    if wanted.is_empty() {
        return Ok(WithTangents::constant(LogicalPlan::RecursiveQuery(query), requests.len()));
    }
    let mut varying = BTreeMap::new();
    // The work table has tangents of the columns that vary, and a column may vary because of another tangent in the
    // work table. So both terms are differentiated again until no further column varies and no further tangent is
    // wanted.
    loop {
        let names = propagation.names.clone();
        let (start, step, recursion) = terms(propagation, &query, requests, &wanted, &varying)?;
        let needed: BTreeSet<InDirection> = wanted.union(&recursion.requested).copied().collect();
        let varies = |(direction, index): &InDirection| {
            let of_term = |term: &WithTangents| term.tangents[*direction].get(*index) != Tangent::Zero;
            variable(*direction) != Variable::Column(*index) && (of_term(&start) || of_term(&step))
        };
        let vary: BTreeSet<InDirection> = needed.iter().copied().filter(varies).collect();
        let has_inactive = |(direction, index): &InDirection| {
            [&start, &step].iter().any(|term| term.tangents[*direction].get(*index).has_inactive())
        };
        let with_inactive: BTreeSet<InDirection> = vary.iter().copied().filter(has_inactive).collect();
        let known: BTreeSet<InDirection> =
            varying.iter().filter(|(_, fields)| fields.inactive.is_some()).map(|(column, _)| *column).collect();
        if needed == wanted && vary.iter().eq(varying.keys()) && with_inactive.is_subset(&known) {
            if let Some((direction, _)) = varying.keys().next() {
                propagation.shared.check_unrolled(&query.name, &propagation.directions[*direction].variable)?;
            }
            return with_tangents(query, [start, step], recursion, &propagation.directions);
        }
        *propagation.names = names;
        wanted = needed;
        for (direction, index) in vary {
            let column = query.static_term.schema().field(index).name();
            let variable = &propagation.directions[direction].variable;
            let fields = varying.entry((direction, index)).or_insert_with(|| TangentFields {
                tangent: propagation.names.tangent(column, variable),
                inactive: None,
            });
            if with_inactive.contains(&(direction, index)) && fields.inactive.is_none() {
                fields.inactive = Some(propagation.names.part("inactive"));
            }
        }
    }
}

/// Returns the directions that are to be followed through the iterations.
fn passed_on(query: &RecursiveQuery, directions: &[Direction], requests: &[NodeRequest]) -> Result<Vec<usize>> {
    let mut passed_on = vec![];
    for (number, (direction, request)) in directions.iter().zip(requests).enumerate() {
        match request.output.variable {
            _ if !request.is_active() => {}
            Variable::Everywhere => {
                return plan_err!(
                    "{} is a recursive query in a gradient by row, and derivatives by {} cannot pass through it",
                    query.name,
                    direction.variable
                );
            }
            Variable::Column(index) if in_work_table(&query.recursive_term, index, &query.name)? != Some(index) => {
                // The other columns of the query are not computed from it.
                check_passed_on(query, index, &direction.variable)?;
            }
            Variable::Column(_) | Variable::Outer => passed_on.push(number),
        }
    }
    Ok(passed_on)
}

/// Propagates tangents of the wanted columns through both terms, with tangents of the varying columns in the work
/// table. Also returns the columns whose tangents the recursive term has requested.
fn terms(
    propagation: &mut Propagation,
    query: &RecursiveQuery,
    requests: &[NodeRequest],
    wanted: &BTreeSet<InDirection>,
    varying: &BTreeMap<InDirection, TangentFields>,
) -> Result<(WithTangents, WithTangents, Recursion)> {
    let to_term = |direction: usize, request: &NodeRequest| {
        let wanted = wanted.range((direction, 0)..(direction + 1, 0)).map(|(_, index)| *index);
        ColumnRequest { columns: wanted.collect(), ..request.output }
    };
    let to_terms: Vec<_> = requests.iter().enumerate().map(|(number, request)| to_term(number, request)).collect();
    let schema = query.static_term.schema();
    let fields = varying.iter().flat_map(|((direction, index), TangentFields { tangent, inactive })| {
        let field = schema.field(*index);
        let data_type = propagation.directions[*direction].tangent_type(field.data_type());
        let inactive = inactive.iter().map(|name| Arc::new(Field::new(name, DataType::Int64, false)));
        [Arc::new(Field::new(tangent, data_type, field.is_nullable()))].into_iter().chain(inactive)
    });
    let table = WorkTable::widened(query, fields);
    let start = propagation.propagate(query.static_term.as_ref().clone(), to_terms.clone())?;
    let variables = requests.iter().map(|request| request.output.variable).collect();
    propagation.recursions.push(Recursion { variables, varying: varying.clone(), table, requested: BTreeSet::new() });
    let step = propagation.propagate(query.recursive_term.as_ref().clone(), to_terms);
    match propagation.recursions.pop() {
        Some(recursion) => Ok((start, step?, recursion)),
        None => internal_err!("a recursive query was left twice"),
    }
}

/// Returns the query of these terms.
fn with_tangents(
    query: RecursiveQuery,
    [start, step]: [WithTangents; 2],
    recursion: Recursion,
    directions: &[Direction],
) -> Result<WithTangents> {
    let Recursion { varying, table, .. } = recursion;
    let Some((direction, _)) = varying.keys().next() else {
        return Ok(WithTangents::constant(LogicalPlan::RecursiveQuery(query), directions.len()));
    };
    if query.is_distinct {
        return plan_err!(
            "{} is a recursive query with UNION, which compares whole rows, so derivatives by {} cannot pass through it. \
             Write UNION ALL",
            query.name,
            directions[*direction].variable
        );
    }
    let term = |before: &DFSchemaRef, propagated: WithTangents| -> Result<Term> {
        let own = columns(before);
        let mut further = vec![];
        for ((direction, index), TangentFields { inactive, .. }) in &varying {
            let tangent = propagated.tangents[*direction].get(*index);
            let inactive = inactive.as_ref().map(|_| tangent.inactive()).transpose()?;
            let tangent = Linearized::Known(tangent);
            further.push(directions[*direction].column(&tangent, &own[*index], before, propagated.plan.schema())?);
            further.extend(inactive);
        }
        Ok(Term { before: Arc::clone(before), plan: propagated.plan, further })
    };
    let (start, step) = (term(query.static_term.schema(), start)?, term(query.recursive_term.schema(), step)?);
    let mut tangents = vec![Tangents::default(); directions.len()];
    for ((direction, index), fields) in &varying {
        let data_type = directions[*direction].tangent_type(query.static_term.schema().field(*index).data_type());
        tangents[*direction].set(*index, fields.to_tangent(None, data_type));
    }
    Ok(WithTangents { plan: table.query(start, step)?, tangents })
}

/// Refuses a variable that every iteration passes on by way of a shared relation, so that other columns may be computed from it:
///
/// ```sql
/// SELECT 0 AS step, val, lr FROM start
/// UNION ALL
/// SELECT step + 1, val - lr * grad((SELECT SUM(val * val) FROM r), val), lr FROM r WHERE step < 9  -- grad(val, lr) of this
/// ```
pub fn check_passed_on(query: &RecursiveQuery, index: usize, variable: &str) -> Result<()> {
    let term = inline_for_analysis(query.recursive_term.as_ref().clone())?;
    match in_work_table(&term, index, &query.name)? == Some(index) {
        true => refused_for_gradients_in(&query.name, variable),
        false => Ok(()),
    }
}

/// Returns the error for a recursive query whose iterations take gradients by row of their own rows.
pub fn refused_for_gradients_in<T>(name: &str, variable: &str) -> Result<T> {
    plan_err!(
        "the iterations of the recursive query {name} take a gradient by its own rows, and derivatives by {variable} cannot pass \
         through them. Write the iterations as CTEs, one after the other"
    )
}
