//! Scans: of tables, of the work tables of recursive queries, and of shared relations.

use datafusion_common::{Column, Result, internal_err};
use datafusion_expr::{Expr, LogicalPlan, Projection, TableScan};
use std::collections::BTreeSet;
use std::sync::Arc;
use xql_autodiff::vocabulary::types::can_vary;

use super::direction::{Direction, Variable};
use super::propagate::{ColumnRequest, NodeRequest, Perturb, Propagation, Recursion, WithTangents};
use super::recursive_query::refused_for_gradients_in;
use super::shared_tangents::{VariableOrigin, rescan};
use crate::physical::Id;
use crate::shared_relation::{Given, IterationsNode, SharedRelation};
use crate::tangents::tangent::{Tangent, Tangents};
use crate::version::table_scan as table_scan_of;
use crate::vocabulary::names::{Names, columns};
use crate::vocabulary::work_table::source_column;

/// Propagates tangents through a scan. Variables originate in tables, so the other columns of a table do not vary.
/// Columns of work tables and of shared relations may.
pub fn table_scan(propagation: &mut Propagation, scan: TableScan, requests: &[NodeRequest]) -> Result<WithTangents> {
    if let Some(relation) = SharedRelation::scanned(&scan) {
        for recursion in &propagation.recursions {
            if SharedRelation::reads_iteration(relation.plan(), recursion.table.name())? {
                return refused_for_gradients_in(recursion.table.name(), propagation.variable_of(requests));
            }
        }
        return shared(propagation, scan, relation, requests);
    }
    if let Some(id) = Given::scanned(&scan).map(|given| given.id()) {
        return given(propagation, scan, id, requests);
    }
    let mut recursions = propagation.recursions.iter_mut().rev();
    match recursions.find(|recursion| recursion.table.is_read_by(&scan)) {
        Some(recursion) => work_table(recursion, &propagation.directions, scan, requests),
        None => Ok(WithTangents::constant(LogicalPlan::TableScan(scan), requests.len())),
    }
}

/// Propagates tangents through the scan of a work table, which has the tangents of the columns that vary.
fn work_table(
    recursion: &mut Recursion,
    directions: &[Direction],
    scan: TableScan,
    requests: &[NodeRequest],
) -> Result<WithTangents> {
    let mut all = vec![];
    let mut added = vec![];
    for (direction, NodeRequest { output, .. }) in requests.iter().enumerate() {
        let mut tangents = Tangents::default();
        let is_variable = match (output.variable, recursion.variables[direction]) {
            (Variable::Column(here), Variable::Column(there)) => source_column(&scan, here) == there,
            // The gradients by row in the work table move with the variable, wherever it is.
            (Variable::Outer, Variable::Outer) => directions[direction].cell.is_some(),
            _ => false,
        };
        for index in output.columns.iter().filter(|_| is_variable) {
            let column = (direction, source_column(&scan, *index));
            recursion.requested.insert(column);
            let Some(fields) = recursion.varying.get(&column) else { continue };
            let before = recursion.varying.range(..column).map(|(_, fields)| fields.width()).sum::<usize>();
            added.extend(before..before + fields.width());
            let data_type = directions[direction].tangent_type(scan.projected_schema.field(*index).data_type());
            tangents.set(*index, fields.to_tangent(Some(scan.table_name.clone()), data_type));
        }
        all.push(tangents);
    }
    let scan = recursion.table.rescan(scan, added)?;
    Ok(WithTangents { plan: LogicalPlan::TableScan(scan), tangents: all })
}

/// Adds tangents to given rows: those of an iteration have tangents by a cell if they vary with it.
fn given(propagation: &mut Propagation, mut scan: TableScan, id: Id, requests: &[NodeRequest]) -> Result<WithTangents> {
    let mut all = vec![];
    for (direction, NodeRequest { output, .. }) in requests.iter().enumerate() {
        let mut tangents = Tangents::default();
        let cell = propagation.directions[direction].cell.as_ref();
        if let Some((given, places)) = cell.and_then(|cell| propagation.shared.given(id, cell)) {
            let width = scan.projected_schema.fields().len();
            let mut projection: Vec<_> = (0..width).map(|index| source_column(&scan, index)).collect();
            for index in &output.columns {
                let Some(place) = places.get(&source_column(&scan, *index)) else { continue };
                let name = given.schema().field(*place).name();
                tangents.set(*index, Column::new(Some(scan.table_name.clone()), name).into());
                projection.push(*place);
            }
            let TableScan { table_name, filters, fetch, .. } = scan;
            scan = table_scan_of(table_name, given.source(), projection, filters, fetch)?;
        }
        all.push(tangents);
    }
    Ok(WithTangents { plan: LogicalPlan::TableScan(scan), tangents: all })
}

/// Propagates tangents through the scan of a shared relation, which a gradient by row reads. If the relation varies
/// with a variable that has one value, it gets tangents as further columns:
///
/// ```text
/// TableScan: ∂groups projection=[∂sum]     ->     TableScan: ∂groups projection=[∂sum, ∂sum/∂e]
/// ```
fn shared(
    propagation: &mut Propagation,
    mut scan: TableScan,
    mut relation: Arc<SharedRelation>,
    requests: &[NodeRequest],
) -> Result<WithTangents> {
    let mut all = vec![];
    for (direction, request) in requests.iter().enumerate() {
        let cell = propagation.directions[direction].cell.clone().filter(|_| request.is_active());
        let found = match cell {
            Some(cell) if propagation.shared.moves(relation.plan(), &cell)? => {
                let read = request.output.columns.iter().map(|index| source_column(&scan, *index)).collect();
                if propagation.shared.by(&relation, &cell, &read).is_none() {
                    add_tangents(propagation, &relation, &cell, direction)?;
                }
                let Some((with, tangents)) = propagation.shared.by(&relation, &cell, &read) else {
                    return internal_err!("a shared relation has no tangents");
                };
                let known = (with, tangents);
                let (next, tangents) =
                    with_tangents(scan, &relation, known, &request.output.columns, propagation.names)?;
                (scan, relation) = (next, Arc::clone(with));
                tangents
            }
            _ => Tangents::default(),
        };
        all.push(found);
    }
    Ok(WithTangents { plan: LogicalPlan::TableScan(scan), tangents: all })
}

/// Returns a scan of a shared relation with the tangents of the wanted columns.
fn with_tangents(
    scan: TableScan,
    relation: &Arc<SharedRelation>,
    (known, tangents): (&Arc<SharedRelation>, &Tangents),
    wanted: &BTreeSet<usize>,
    names: &mut Names,
) -> Result<(TableScan, Tangents)> {
    let wanted: Vec<_> = wanted.iter().map(|index| (*index, tangents.get(source_column(&scan, *index)))).collect();
    let position = |column: &Column| known.columns().position(|name| name == column.name);
    let added = wanted.iter().filter_map(|(_, tangent)| match tangent {
        Tangent::Column(tangent) => position(&tangent.column),
        Tangent::Zero | Tangent::One => None,
    });
    let added = added.collect();
    let table = scan.table_name.clone();
    let (scan, named) = rescan(scan, [relation, known], &added, &mut |name| names.part(name))?;
    let mut found = Tangents::default();
    for (index, tangent) in wanted {
        let tangent = match tangent {
            Tangent::Column(tangent) => {
                let named = position(&tangent.column).and_then(|position| named.get(position));
                let Some(named) = named else { return internal_err!("a tangent is not read") };
                Column::new(Some(table.clone()), named.clone()).into()
            }
            constant => constant,
        };
        found.set(index, tangent);
    }
    Ok((scan, found))
}

/// Gives all columns of a shared relation tangents by the cell of a direction.
fn add_tangents(
    propagation: &mut Propagation,
    relation: &Arc<SharedRelation>,
    cell: &VariableOrigin,
    direction: usize,
) -> Result<()> {
    let latest = propagation.shared.latest(relation);
    let plan = latest.plan();
    let fields = plan.schema().fields().iter().enumerate();
    let varying = fields.filter(|(_, field)| can_vary(field.data_type())).map(|(index, _)| index).collect();
    let request = ColumnRequest { variable: Variable::Everywhere, perturb: Perturb::AllRows, columns: varying };
    let (propagated, of_plan) = propagation.propagate_in(direction, plan.clone(), request)?;
    if IterationsNode::from_node(&propagated).is_some() {
        // The tangents are its last columns already.
        let with_tangents = latest.with_plan(propagated);
        propagation.shared.add(latest, cell.clone(), with_tangents, of_plan);
        return Ok(());
    }
    let mut exprs = columns(plan.schema());
    let mut tangents = Tangents::default();
    for (index, tangent) in of_plan.iter() {
        let tangent = match tangent {
            Tangent::Column(tangent) => {
                let name = propagation.names.part(&tangent.column.name);
                exprs.push(Expr::Column(tangent.column.clone()).alias(name.clone()));
                Column::new_unqualified(name).into()
            }
            constant => constant.clone(),
        };
        tangents.set(index, tangent);
    }
    let plan = LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(propagated))?);
    let with_tangents = latest.with_plan(plan);
    propagation.shared.add(latest, cell.clone(), with_tangents, tangents);
    Ok(())
}
