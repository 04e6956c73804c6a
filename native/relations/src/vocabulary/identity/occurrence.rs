//! Queries, which are known by where they were written.

use datafusion_common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion_common::{Column, DFSchemaRef};
use datafusion_expr::{Expr, LogicalPlan};
use std::hash::{Hash, Hasher};
use std::mem::discriminant;
use std::sync::Arc;

use super::plan_path::Place;
use super::table::{Table, table_of};
use crate::vocabulary::names::is_added;
use crate::vocabulary::nodes::draws_itself;

/// Returns whether two nodes are one relation: the same table, whatever its name and alias, or one query that a name stands for.
pub fn is_same(a: &LogicalPlan, b: &LogicalPlan) -> bool {
    if let (LogicalPlan::TableScan(a), LogicalPlan::TableScan(b)) = (a, b) {
        return Table::of(a) == Table::of(b)
            && a.filters == b.filters
            && a.fetch == b.fetch
            && a.projection == b.projection;
    }
    is_copy(a, b) || is_equal(a, b) && occurrences(a) == occurrences(b)
}

/// Returns whether two nodes are copies of one, of which one reads CTEs that are written out in the other. Copies share their schema,
/// as a leaf does ([`Occurrence`]).
fn is_copy(a: &LogicalPlan, b: &LogicalPlan) -> bool {
    Arc::ptr_eq(a.schema(), b.schema())
        && discriminant(a) == discriminant(b)
        && a.expressions() == b.expressions()
        && (reads_common(a) || reads_common(b))
}

/// Returns whether a node is computed from a CTE or view that it scans.
fn reads_common(plan: &LogicalPlan) -> bool {
    let mut reads = false;
    visit(plan, |node| {
        reads |= matches!(node, LogicalPlan::TableScan(scan) if scan.source.get_logical_plan().is_some());
    });
    reads
}

/// Returns whether a node may be what computes a column of another, which has the same leaves, though one of them has further columns by
/// now. What has been added to two copies of a query is called otherwise in each, so that an expression that reads it tells nothing.
pub fn computes_column(node: &LogicalPlan, other: &LogicalPlan, index: usize) -> bool {
    let column = Column::from(other.schema().qualified_field(index));
    let computing = |plan: &LogicalPlan| {
        plan.expressions().into_iter().find(|expr| {
            let (relation, name) = expr.qualified_name();
            relation == column.relation && name == column.name
        })
    };
    let reads_added = |expr: &Option<Expr>| expr.as_ref().is_some_and(reads_added);
    let (computed, other_computed) = (computing(node), computing(other));
    discriminant(node) == discriminant(other)
        && node.schema().maybe_index_of_column(&column).is_some()
        && own_leaves(node) == own_leaves(other)
        && (computed == other_computed || reads_added(&computed) && reads_added(&other_computed))
}

/// Returns whether an expression, or a subquery in it, reads what has been added.
fn reads_added(expr: &Expr) -> bool {
    let reads = expr.exists(|part| {
        let mut reads = matches!(part, Expr::Column(column) if is_added(&column.name));
        if let Expr::ScalarSubquery(query) = part {
            visit(&query.subquery, |node| reads |= scans_added(node));
        }
        Ok(reads)
    });
    debug_assert!(reads.is_ok(), "the closure never fails");
    reads.unwrap_or(true)
}

/// Returns whether a node scans a relation that has been added.
fn scans_added(node: &LogicalPlan) -> bool {
    matches!(node, LogicalPlan::TableScan(scan) if is_added(scan.table_name.table()))
}

/// Returns the leaves of a plan but those that have been added.
fn own_leaves(plan: &LogicalPlan) -> Vec<Occurrence> {
    let mut leaves = vec![];
    visit(plan, |node| {
        if node.inputs().is_empty() && !scans_added(node) {
            leaves.push(Occurrence(Arc::clone(node.schema())));
        }
    });
    leaves
}

/// Returns whether two plans say the same: one text over the same tables.
pub fn is_equal(a: &LogicalPlan, b: &LogicalPlan) -> bool {
    a == b && tables(a) == tables(b)
}

/// Returns the tables that a plan reads, in their order.
fn tables(plan: &LogicalPlan) -> Vec<Table> {
    let mut tables = vec![];
    visit(plan, |node| tables.extend(table_of(node)));
    tables
}

/// What the rows of a node depend on that its equality leaves out.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct IdentityKey {
    table: Option<Table>,
    /// The leaves below a node that draws, and where it stands: it draws anew wherever it is written.
    draws: Option<(Vec<Occurrence>, Place)>,
}

impl IdentityKey {
    /// That of a node in a place, beside what its inputs are.
    pub fn of(node: &LogicalPlan, place: &Place) -> Self {
        let draws = draws_itself(node).then(|| (occurrences(node), place.clone()));
        Self { table: table_of(node), draws }
    }
}

/// A leaf of a query as it was written in one place. However often a CTE or a view is read, its leaves are copies of the same, which
/// share their schema; a leaf that is written in another place has one of its own.
#[derive(Debug, Clone)]
pub struct Occurrence(DFSchemaRef);

impl PartialEq for Occurrence {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Occurrence {}

impl Hash for Occurrence {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.0).hash(state);
    }
}

/// Returns the leaves of a plan, in their order.
pub fn occurrences(plan: &LogicalPlan) -> Vec<Occurrence> {
    let mut leaves = vec![];
    visit(plan, |node| {
        if node.inputs().is_empty() {
            leaves.push(Occurrence(Arc::clone(node.schema())));
        }
    });
    leaves
}

/// Returns whether a plan reads rows that the statement itself has.
pub fn reads_values(plan: &LogicalPlan) -> bool {
    let mut reads = false;
    visit(plan, |node| reads |= matches!(node, LogicalPlan::Values(_)));
    reads
}

/// Goes through the nodes of a plan and of the subqueries in it.
fn visit(plan: &LogicalPlan, mut each: impl FnMut(&LogicalPlan)) {
    let visited = plan.apply_with_subqueries(|node| {
        each(node);
        Ok(TreeNodeRecursion::Continue)
    });
    debug_assert!(visited.is_ok(), "the closure never fails");
}
