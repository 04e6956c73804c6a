//! The identity of queries: two nodes are one relation if they were written in one place.

use datafusion_common::DFSchemaRef;
use datafusion_common::tree_node::TreeNodeRecursion;
use datafusion_expr::LogicalPlan;
use std::hash::{Hash, Hasher};
use std::mem::discriminant;
use std::sync::Arc;

use super::plan_path::PlanPath;
use super::table::{Table, table_of};
use crate::vocabulary::nodes::{common_scanned_by, draws_itself, without_inputs};

/// Returns whether two nodes are one relation: the same table, whatever its name and alias, or one query that a name stands for.
pub fn is_same(a: &LogicalPlan, b: &LogicalPlan) -> bool {
    if let (LogicalPlan::TableScan(a), LogicalPlan::TableScan(b)) = (a, b) {
        return Table::from_scan(a) == Table::from_scan(b)
            && a.filters == b.filters
            && a.fetch == b.fetch
            && a.projection == b.projection;
    }
    is_copy(a, b) || is_equal(a, b) && occurrences(a) == occurrences(b)
}

/// Returns whether two nodes are copies of one, of which one reads CTEs that are written out in the other. Copies may share their schema, as
/// a leaf does ([`Occurrence`]); those that were planned again say the same.
fn is_copy(a: &LogicalPlan, b: &LogicalPlan) -> bool {
    discriminant(a) == discriminant(b)
        && a.expressions() == b.expressions()
        && (reads_common(a) || reads_common(b))
        && (Arc::ptr_eq(a.schema(), b.schema()) || is_written_alike(a, b))
}

/// Returns whether two nodes are the same once the CTEs and views that they scan are written out.
#[recursive::recursive]
fn is_written_alike(a: &LogicalPlan, b: &LogicalPlan) -> bool {
    match (common_scanned_by(a), common_scanned_by(b)) {
        (Some(one), Some(other)) if std::ptr::eq(one, other) => return a == b,
        (None, None) => {}
        (one, other) => return is_written_alike(one.unwrap_or(a), other.unwrap_or(b)),
    }
    let (Some((one, inputs)), Some((other, others))) = (split_inputs(a), split_inputs(b)) else { return false };
    if inputs.is_empty() {
        return a == b && Arc::ptr_eq(a.schema(), b.schema());
    }
    inputs.len() == others.len()
        && one == other
        && inputs.iter().zip(&others).all(|(one, other)| is_written_alike(one, other))
}

/// Returns a node without its inputs, and these and its subqueries.
fn split_inputs(node: &LogicalPlan) -> Option<(LogicalPlan, Vec<LogicalPlan>)> {
    let (node, mut inputs) = without_inputs(node.clone()).ok()?;
    let visited = node.apply_subqueries(|subquery| {
        inputs.push(subquery.clone());
        Ok(TreeNodeRecursion::Continue)
    });
    debug_assert!(visited.is_ok(), "the closure never fails");
    Some((node, inputs))
}

/// Returns whether a node is computed from a CTE or view that it scans.
fn reads_common(plan: &LogicalPlan) -> bool {
    let mut reads = false;
    visit(plan, |node| reads |= common_scanned_by(node).is_some());
    reads
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

/// The parts of a node's identity that DataFusion's equality ignores.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct IdentityKey {
    table: Option<Table>,
    /// The leaves below a node that draws, and where it stands: it draws anew wherever it is written.
    draws: Option<(Vec<Occurrence>, PlanPath)>,
}

impl IdentityKey {
    /// That of a node at a path, beside what its inputs are.
    pub fn new(node: &LogicalPlan, path: &PlanPath) -> Self {
        let draws = draws_itself(node).then(|| (occurrences(node), path.clone()));
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
