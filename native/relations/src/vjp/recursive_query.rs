//! Recursive queries.

use arrow::datatypes::Schema;
use datafusion_common::tree_node::Transformed;
use datafusion_common::{DFSchema, Result, plan_err};
use datafusion_expr::{LogicalPlan, Projection, RecursiveQuery};
use std::collections::BTreeSet;
use std::sync::Arc;

use super::linearize::SegmentBuilder;
use super::nodes::Node;
use super::residuals::{LinearizedIterations, ResidualKind, Residuals, Stored};
use super::segment::{ResidualId, Segment};
use crate::shared_relation::{self, Given, SharedRelation, each_rewritten, read_from};
use crate::vocabulary::names::{Names, columns};
use crate::vocabulary::work_table::is_work_table;

/// Linearizes a recursive query. The rows of all iterations are one residual, and each iteration has residuals of its
/// own. These are kept for each iteration (the tape): the sweep reads them when it goes back through that iteration.
///
/// Columns that vary in one iteration may make others vary in the next, so the iteration is linearized again until no
/// further column varies.
///
/// ```text
/// RecursiveQuery: r                 Iterations: r
///   Projection: 0, w.val              TableScan: ∂rows of the first iteration
///     TableScan: w             ->     TableScan: ∂rows of the next
///   Projection: s + 1, val * val        the recursive term over TableScan: ∂before, the rows that an iteration is given
///     TableScan: r
/// ```
pub fn recursive_query(builder: &mut SegmentBuilder, node: Node, query: &RecursiveQuery) -> Result<Segment> {
    check(query)?;
    let first = builder.segment(&query.static_term)?;
    // The iterations need first rows of their own, because tangents may be added to these.
    let start = builder.rows_with(first, vec![])?;
    let mut varying = varying(builder.residuals, start);
    let (work, body, rows) = loop {
        let (work, body, rows) = iteration(builder, query, &varying)?;
        let next: BTreeSet<_> = varying.union(&self::varying(&body, rows)).copied().collect();
        if next == varying {
            break (work, body, rows);
        }
        varying = next;
    };
    let width = query.static_term.schema().fields().len();
    let start_rows = numbered_rows(&builder.residuals.all()[start].stored, width)?;
    let next_rows = numbered_rows(&body.all()[rows].stored, width)?;
    let schema = Arc::new(DFSchema::try_from(fields(query, builder.names))?);
    let plan = shared_relation::IterationsNode::tape(query, work, [start_rows, next_rows], schema);
    let row = builder.names.part("row");
    let relation = Arc::new(SharedRelation::numbered(builder.names.part(&query.name), plan, &row));
    let stored = Stored { relation, single: false, varying: varying.into_iter().collect() };
    let first_varying = builder.residuals.all()[start].stored.varying.clone();
    let columns = Arc::clone(query.static_term.schema().inner());
    let iterations = LinearizedIterations { query: query.name.clone(), columns, start, first_varying, body, rows };
    let residual = builder.residuals.add(stored, ResidualKind::Iterations(Box::new(iterations)));
    builder.read_anew(node, residual, width)
}

/// Refuses a recursive query without a known derivative.
fn check(query: &RecursiveQuery) -> Result<()> {
    let name = &query.name;
    if query.is_distinct {
        return plan_err!(
            "{name} is a recursive query with UNION, which compares whole rows, so gradients by row cannot pass through it. \
             Write UNION ALL"
        );
    }
    let is_same = |node: &LogicalPlan| matches!(node, LogicalPlan::RecursiveQuery(inner) if inner.name == *name);
    let is_hidden = SharedRelation::any_node_in(&query.recursive_term, &is_same)?;
    if is_hidden {
        return plan_err!("the recursive query {name} has another one of the same name in it. Rename it");
    }
    let types = |plan: &LogicalPlan| plan.schema().fields().iter().map(|field| field.data_type().clone()).collect();
    let [first, next]: [Vec<_>; 2] = [types(&query.static_term), types(&query.recursive_term)];
    if first != next {
        return plan_err!("the terms of the recursive query {name} are of the types {first:?} and {next:?}. Cast them");
    }
    Ok(())
}

/// Returns the positions of the columns of a residual that vary.
fn varying(residuals: &Residuals, residual: ResidualId) -> BTreeSet<usize> {
    residuals.all()[residual].stored.varying.iter().copied().collect()
}

/// Returns the columns of a recursive query, under names of their own.
fn fields(query: &RecursiveQuery, names: &mut Names) -> Schema {
    let next = query.recursive_term.schema().fields();
    let fields = query.static_term.schema().fields().iter().zip(next).map(|(field, next)| {
        let is_nullable = field.is_nullable() || next.is_nullable();
        field.as_ref().clone().with_name(names.part(field.name())).with_nullable(is_nullable)
    });
    Schema::new(fields.collect::<Vec<_>>())
}

/// Returns the rows of a residual: the first columns, and the number of the row.
fn numbered_rows(stored: &Stored, width: usize) -> Result<LogicalPlan> {
    let scan = stored.relation.scan()?;
    let all = columns(scan.schema());
    let exprs = all.iter().take(width).chain(all.last()).cloned().collect();
    Ok(LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(scan))?))
}

/// Linearizes an iteration in which these columns of the rows before vary. Returns the table of the rows before, the
/// residuals of the iteration, and the one with its rows.
fn iteration(
    builder: &mut SegmentBuilder,
    query: &RecursiveQuery,
    varying: &BTreeSet<usize>,
) -> Result<(Given, Residuals, ResidualId)> {
    let names = &mut *builder.names;
    let given = Given::new(names.part(&query.name), Arc::new(fields(query, names)));
    let before = Arc::new(SharedRelation::numbered(names.part("before"), given.scan()?, &names.part("row")));
    let scan = before.scan()?;
    // The shared relations of gradients in the term also read the rows before.
    let term = each_rewritten(query.recursive_term.as_ref().clone(), &mut |plan| {
        plan.transform_down_with_subqueries(|node| match node {
            LogicalPlan::TableScan(read) if is_work_table(&read, &query.name) => {
                Ok(Transformed::yes(read_from(&read, scan.clone())?))
            }
            node => Ok(Transformed::no(node)),
        })
    })?;
    let term = builder.residuals.nodes.keep(term.data);
    let before = Stored { relation: before, single: false, varying: varying.iter().copied().collect() };
    let (rows, body) = builder.iteration(Residuals::after(before), |builder| {
        builder.residuals.enter(&term, builder.variables)?;
        let segment = builder.segment(&term)?;
        builder.rows_with(segment, vec![])
    })?;
    Ok((given, body, rows))
}
