//! Shared relations with tangents as further columns.
//!
//! A plan only scans a shared relation. So a relation with tangents is recorded here, and all scans are replaced at the
//! end, when each relation has all of its tangents.

use datafusion_common::tree_node::Transformed;
use datafusion_common::{Column, Result, plan_err};
use datafusion_expr::{Aggregate, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, TableScan, lit, when};
use datafusion_functions_aggregate::count::count_all;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::swept_query::SweptQuery;
use crate::fixed_points::FixedPoints;
use crate::physical::Id;
use crate::shared_relation::{Given, Replaced, SharedRelation};
use crate::tangents::tangent::Tangents;
use crate::version::table_scan;
use crate::vocabulary::expressions::failing;
use crate::vocabulary::identity::is_same;
use crate::vocabulary::names::{Names, with_columns};
use crate::vocabulary::nodes::{any_node, has_one_row_at_most};
use crate::vocabulary::source::{Source, sources_of};
use crate::vocabulary::work_table::source_column;

/// The relation and the column in which a variable originates.
#[derive(Debug, Clone)]
pub struct VariableOrigin {
    /// The relation.
    pub origin: LogicalPlan,
    /// The position of the column there.
    pub position: usize,
}

/// The shared relations that have got tangents, and what is given to iterations with tangents.
#[derive(Debug, Default, Clone)]
pub struct SharedTangents {
    relations: Vec<RelationTangents>,
    given: Vec<GivenTangents>,
    /// The recursive queries that have the derivative of their limit, through which no tangents are propagated.
    fixed_points: FixedPoints,
}

/// Rows that are given to iterations, with tangents.
#[derive(Debug, Clone)]
struct GivenTangents {
    by: VariableOrigin,
    given: Given,
    /// By the position of a column that of its tangent.
    places: BTreeMap<usize, usize>,
}

/// A shared relation and the same with tangents.
#[derive(Debug, Clone)]
struct RelationTangents {
    of: Arc<SharedRelation>,
    by: VariableOrigin,
    /// The relation with tangents behind its columns, before the number of the row.
    relation: Arc<SharedRelation>,
    /// The tangents of its columns, as columns of it.
    tangents: Tangents,
}

impl VariableOrigin {
    /// Returns the cells of column number `index` of a plan: several for one of a UNION.
    pub fn all_of(plan: &LogicalPlan, index: usize) -> Result<Vec<Self>> {
        let sources = sources_of(plan, index)?.into_iter();
        Ok(sources.map(|Source { origin, position, .. }| Self { origin, position }).collect())
    }

    /// Returns the cell of column number `index` of a plan, looked for in shared relations too, if one of these reads it beside
    /// the column itself.
    ///
    /// # Errors
    /// If what a gradient by row has computed reads the column, which cannot be moved there: a UNION puts it together, or the gradient has
    /// gone through what computes it.
    pub fn find<'s>(
        plan: &LogicalPlan,
        index: usize,
        variable: &str,
        swept: impl Iterator<Item = &'s SweptQuery> + Clone,
    ) -> Result<Option<Self>> {
        if !SharedRelation::is_scanned_in(plan)? {
            return Ok(None);
        }
        let mut found = vec![];
        Self::behind(plan, index, None, &[], &mut found)?;
        let is_only = found.len() == 1;
        for (cell, numbered) in found {
            for query in swept.clone() {
                if query.has_gone_through((&cell.origin, cell.position), plan)? {
                    return plan_err!(
                        "{variable} is computed from rows by which a gradient is, so that its cells are cells of that gradient too{}",
                        advice(variable)
                    );
                }
            }
            if !cell.is_shared_in(plan, &numbered)? {
                continue;
            }
            if is_only {
                return Ok(Some(cell));
            }
            return plan_err!(
                "{variable} comes from several branches of a UNION, with cells in each{}",
                advice(variable)
            );
        }
        Ok(None)
    }

    /// Finds the cells in which column number `index` of a plan originates, behind the shared relations that are scanned there, each
    /// with the relations that are the numbered rows of its origin. `scanned` is the relation whose plan it is.
    fn behind(
        plan: &LogicalPlan,
        index: usize,
        scanned: Option<&Arc<SharedRelation>>,
        numbered: &[Arc<SharedRelation>],
        found: &mut Vec<(Self, Vec<Arc<SharedRelation>>)>,
    ) -> Result<()> {
        for Source { origin, position, path } in sources_of(plan, index)? {
            let own = scanned.filter(|_| path.len() == 1);
            let numbered: Vec<_> = numbered.iter().chain(own).cloned().collect();
            match SharedRelation::column_scanned_by(&origin, position) {
                None => found.push((Self { origin, position }, numbered)),
                Some((relation, Some(position))) => {
                    Self::behind(relation.plan(), position, Some(&relation), &numbered, found)?;
                }
                Some((_, None)) => {}
            }
        }
        Ok(())
    }

    /// Returns whether a shared relation in a plan reads it, other than those that are the numbered rows of its origin.
    fn is_shared_in(&self, plan: &LogicalPlan, numbered: &[Arc<SharedRelation>]) -> Result<bool> {
        any_node(plan, |node| match SharedRelation::scanned_by(node) {
            Some(relation) if !relation.is_common() && !numbered.iter().any(|own| Arc::ptr_eq(own, &relation)) => {
                self.is_read_by(relation.plan())
            }
            _ => Ok(false),
        })
    }

    /// Returns whether a plan, a subquery or a shared relation in it reads it.
    pub fn is_read_by(&self, plan: &LogicalPlan) -> Result<bool> {
        SharedRelation::any_node_in(plan, &|node| is_same(node, &self.origin))
    }

    /// Returns a plan with a column of it, a tangent by the cell, as one that is an error when the query runs if there is more than
    /// one cell: what a gradient by row reads would not know which of them moves.
    pub fn checked(
        &self,
        plan: LogicalPlan,
        tangent: &Column,
        variable: &str,
        names: &mut Names,
    ) -> Result<(LogicalPlan, Column)> {
        if has_one_row_at_most(&self.origin) {
            return Ok((plan, tangent.clone()));
        }
        let rows = names.part("rows");
        let counted = vec![count_all().unalias_nested().data.alias(rows.clone())];
        let counted = Aggregate::try_new(Arc::new(self.origin.clone()), vec![], counted)?;
        let rows = Expr::Column(Column::new_unqualified(rows));
        let plan = LogicalPlanBuilder::from(plan).cross_join(LogicalPlan::Aggregate(counted))?.build()?;
        let tangent = Expr::Column(tangent.clone());
        let what = format!(" cells of {variable}{}", advice(variable));
        let error = failing([lit("VariableError: "), rows.clone(), lit(what)], tangent.get_type(plan.schema())?);
        let name = names.part(&tangent.qualified_name().1);
        let checked = when(rows.gt(lit(1_i64)), error).otherwise(tangent)?.alias(name.clone());
        Ok((with_columns(plan, vec![checked])?, Column::new_unqualified(name)))
    }

    fn is(&self, other: &Self) -> bool {
        self.position == other.position && is_same(&self.origin, &other.origin)
    }
}

/// Why there is no derivative of a gradient by a column of several cells, and what to write.
fn advice(variable: &str) -> String {
    format!(
        ", by each of which a gradient by row has a derivative of its own: differentiate by a column of a one-row table, as eps in \
         {variable} + eps * v, or by rows, with the gradient d in a query g, as grad(g.d, w.{variable}) FROM g CROSS JOIN w"
    )
}

impl SharedTangents {
    /// Creates an empty registry for a session in which these recursive queries have the derivative of their limit.
    pub fn beside(fixed_points: FixedPoints) -> Self {
        Self { fixed_points, ..Self::default() }
    }

    /// Refuses to propagate tangents through the iterations of a recursive query that has the derivative of its limit.
    pub fn check_unrolled(&self, query: &str, variable: &str) -> Result<()> {
        if self.fixed_points.tolerance(query).is_none() {
            return Ok(());
        }
        plan_err!(
            "the derivative of the recursive query {query} by {variable} would go through its iterations, and xql.fixed_point asks for that of \
             its limit, which only gradients by row have: grad((SELECT ... FROM {query} ...), ...). SET xql.fixed_point = 0 goes through \
             all iterations"
        )
    }

    fn get(&self, relation: &Arc<SharedRelation>) -> Option<&RelationTangents> {
        self.relations.iter().find(|known| Arc::ptr_eq(&known.of, relation))
    }

    /// Records a relation with its tangents by a variable.
    pub fn add(&mut self, of: Arc<SharedRelation>, by: VariableOrigin, relation: SharedRelation, tangents: Tangents) {
        self.relations.push(RelationTangents { of, by, relation: Arc::new(relation), tangents });
    }

    /// Records the input rows of an iteration with their tangents by a variable. `places` has the position of the
    /// tangent of each column.
    pub fn add_given(&mut self, by: VariableOrigin, given: Given, places: BTreeMap<usize, usize>) {
        self.given.push(GivenTangents { by, given, places });
    }

    /// Returns the rows that are given under an id with tangents by a cell, and where these are, if they vary with it.
    pub fn given(&self, id: Id, cell: &VariableOrigin) -> Option<(&Given, &BTreeMap<usize, usize>)> {
        // Those that have got tangents last have them by all columns, the tangents before included.
        let known = self.given.iter().rev().find(|known| known.given.id() == id && known.by.is(cell))?;
        Some((&known.given, &known.places))
    }

    /// Returns whether a plan, a subquery or a shared relation in it reads a cell, or rows that are given and vary with it.
    pub fn moves(&self, plan: &LogicalPlan, cell: &VariableOrigin) -> Result<bool> {
        let is_given = |node: &LogicalPlan| match node {
            LogicalPlan::TableScan(scan) if !self.given.is_empty() => {
                Given::scanned(scan).is_some_and(|given| self.given(given.id(), cell).is_some())
            }
            _ => false,
        };
        SharedRelation::any_node_in(plan, &|node| is_given(node) || is_same(node, &cell.origin))
    }

    /// Returns the relation with all of its tangents.
    pub fn latest(&self, relation: &Arc<SharedRelation>) -> Arc<SharedRelation> {
        let mut latest = Arc::clone(relation);
        while let Some(known) = self.get(&latest) {
            latest = Arc::clone(&known.relation);
        }
        latest
    }

    /// Returns the tangents of these columns of a relation by a variable, if there are any, and the relation that has
    /// them. That is the relation itself, or one with further tangents.
    pub fn by(
        &self,
        relation: &Arc<SharedRelation>,
        cell: &VariableOrigin,
        columns: &BTreeSet<usize>,
    ) -> Option<(&Arc<SharedRelation>, &Tangents)> {
        if let Some(known) = self.before(relation, cell, columns) {
            let own = self.relations.iter().find(|known| Arc::ptr_eq(&known.relation, relation))?;
            return Some((&own.relation, &known.tangents));
        }
        let mut known = self.get(relation)?;
        while !known.by.is(cell) {
            known = self.get(&known.relation)?;
        }
        Some((&known.relation, &known.tangents))
    }

    /// Returns how a relation has got the tangents of these columns by a cell, which it had before.
    fn before(
        &self,
        relation: &Arc<SharedRelation>,
        cell: &VariableOrigin,
        columns: &BTreeSet<usize>,
    ) -> Option<&RelationTangents> {
        let mut relation = relation;
        loop {
            let known = self.relations.iter().find(|known| Arc::ptr_eq(&known.relation, relation))?;
            let width = known.of.plan().schema().fields().len();
            if known.by.is(cell) && columns.iter().all(|column| *column < width) {
                return Some(known);
            }
            relation = &known.of;
        }
    }

    /// Replaces the scans of relations by scans of those with tangents. Each relation is still computed once.
    pub fn scanned_in(&self, plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
        if self.relations.is_empty() { Ok(Transformed::no(plan)) } else { self.scanned(plan, &mut Replaced::default()) }
    }

    #[recursive::recursive]
    fn scanned(&self, plan: LogicalPlan, replaced: &mut Replaced) -> Result<Transformed<LogicalPlan>> {
        plan.transform_down_with_subqueries(|node| {
            let LogicalPlan::TableScan(scan) = node else { return Ok(Transformed::no(node)) };
            let Some(relation) = SharedRelation::scanned(&scan) else {
                return Ok(Transformed::no(LogicalPlan::TableScan(scan)));
            };
            let latest = self.latest(&relation);
            let latest = replaced.by(&latest, |plan, replaced| self.scanned(plan, replaced))?;
            if Arc::ptr_eq(&latest, &relation) {
                return Ok(Transformed::no(LogicalPlan::TableScan(scan)));
            }
            let (scan, _) = rescan(scan, [&relation, &latest], &BTreeSet::new(), &mut |name| name.to_owned())?;
            Ok(Transformed::yes(LogicalPlan::TableScan(scan)))
        })
    }
}

/// Rewrites a scan of a relation to scan the one with tangents: the columns that it scanned, and the `added` ones.
/// `name` names the columns that the relation did not have. Returns the names of all columns as well.
pub fn rescan(
    scan: TableScan,
    [before, after]: [&Arc<SharedRelation>; 2],
    added: &BTreeSet<usize>,
    name: &mut dyn FnMut(&str) -> String,
) -> Result<(TableScan, Vec<String>)> {
    let (was, is) = (before.columns().count(), after.columns().count());
    // The number of the row stays the last.
    let moved = |position: usize| if before.is_numbered() && position + 1 == was { is - 1 } else { position };
    let mut names: Vec<Option<String>> = vec![None; is];
    for (position, field) in scan.source.schema().fields().iter().enumerate() {
        names[moved(position)] = Some(field.name().clone());
    }
    let names: Vec<_> =
        names.into_iter().zip(after.columns()).map(|(known, own)| known.unwrap_or_else(|| name(own))).collect();
    let width = scan.projected_schema.fields().len();
    let mut projection: Vec<_> = (0..width).map(|index| moved(source_column(&scan, index))).collect();
    projection.extend(added.iter().filter(|column| !projection.contains(column)).copied().collect::<Vec<_>>());
    let TableScan { table_name, filters, fetch, .. } = scan;
    let source = after.read_as(&names);
    Ok((table_scan(table_name, source, projection, filters, fetch)?, names))
}
