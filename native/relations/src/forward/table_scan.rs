//! Tangents of the columns of shared relations.
//!
//! What a gradient by row reads is computed once, by relations that the plan only scans. Where it varies with a variable of one
//! cell, they get tangents as further columns:
//!
//! ```text
//! TableScan: ∂groups projection=[∂sum]     ->     TableScan: ∂groups projection=[∂sum, ∂sum/∂e]
//! ```

use datafusion_common::{Column, Result, internal_err};
use datafusion_expr::{Expr, LogicalPlan, Projection, TableScan};
use std::collections::BTreeSet;
use std::sync::Arc;
use xql_autodiff::vocabulary::types::can_vary;

use super::carrier::{Carried, Carrier, Variable};
use super::shared_tangents::{Cell, Growth, reading};
use crate::shared::SharedRelation;
use crate::tangents::tangent::{Tangent, Tangents};
use crate::vocabulary::names::columns;
use crate::vocabulary::work_table::source_column;

impl Carrier<'_> {
    /// A scan of a shared relation with the tangents of the wanted columns.
    pub fn shared(
        &mut self,
        scan: TableScan,
        relation: &Arc<SharedRelation>,
        wanted: &BTreeSet<usize>,
    ) -> Result<Carried> {
        let Some(cell) = self.cell.clone() else { return Ok(Carried::constant(LogicalPlan::TableScan(scan))) };
        if !cell.is_read_by(relation.plan())? {
            return Ok(Carried::constant(LogicalPlan::TableScan(scan)));
        }
        if self.grown.by(relation, &cell).is_none() {
            self.grow(relation, &cell)?;
        }
        let Some(Growth { relation: grown, tangents, .. }) = self.grown.by(relation, &cell) else {
            return internal_err!("a shared relation has no tangents");
        };
        let wanted: Vec<_> = wanted.iter().map(|index| (*index, tangents.get(source_column(&scan, *index)))).collect();
        let position = |column: &Column| grown.columns().position(|name| name == column.name);
        let added = wanted.iter().filter_map(|(_, tangent)| match tangent {
            Tangent::Column(column) => position(column),
            _ => None,
        });
        let added = added.collect();
        let mut found = Tangents::default();
        let names = &mut *self.names;
        let table = scan.table_name.clone();
        let (scan, named) = reading(scan, relation, grown, &added, &mut |name| names.part(name))?;
        for (index, tangent) in wanted {
            let tangent = match tangent {
                Tangent::Column(column) => {
                    let named = position(&column).and_then(|position| named.get(position));
                    let Some(named) = named else { return internal_err!("a tangent is not read") };
                    Tangent::Column(Column::new(Some(table.clone()), named.clone()))
                }
                constant => constant,
            };
            found.set(index, tangent);
        }
        Ok(Carried { plan: LogicalPlan::TableScan(scan), tangents: found })
    }

    /// Gives all columns of a shared relation tangents by a cell.
    fn grow(&mut self, relation: &Arc<SharedRelation>, cell: &Cell) -> Result<()> {
        let latest = self.grown.latest(relation);
        let plan = latest.plan();
        let fields = plan.schema().fields().iter().enumerate();
        let all = fields.filter(|(_, field)| can_vary(field.data_type())).map(|(index, _)| index).collect();
        let carried = self.carry(plan.clone(), Variable::Everywhere, &all)?;
        let mut exprs = columns(plan.schema());
        let mut tangents = Tangents::default();
        for (index, tangent) in carried.tangents.iter() {
            let tangent = match tangent {
                Tangent::Column(column) => {
                    let name = self.names.part(&column.name);
                    exprs.push(Expr::Column(column.clone()).alias(name.clone()));
                    Tangent::Column(Column::new_unqualified(name))
                }
                constant => constant.clone(),
            };
            tangents.set(index, tangent);
        }
        let plan = LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(carried.plan))?);
        let grown = latest.with_plan(plan);
        self.grown.add(latest, cell.clone(), grown, tangents);
        Ok(())
    }
}
