//! Which nodes are one relation, and which compute the same.
//!
//! DataFusion's own equality of plans leaves out the tables that scans read, and takes two queries of one text for one.
//!
//! ```sql
//! WITH a AS (SELECT 1.0 AS v), b AS (SELECT 1.0 AS v) ...   -- compute the same, and are two relations
//! ```

use datafusion_catalog::default_table_source::source_as_provider;
use datafusion_catalog::{MemTable, TableProvider};
use datafusion_common::tree_node::TreeNodeRecursion;
use datafusion_common::{DFSchemaRef, Result};
use datafusion_expr::{LogicalPlan, TableScan, TableType};
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use xql_autodiff::vocabulary::columns::is_volatile;

use super::nodes::any_node;

/// What DataFusion calls a table that has no name, such as a file that is read as a `DataFrame`.
const UNNAMED: &str = "?table?";

/// Whether two nodes are one relation: the same table, whatever its name and alias, or one query that a name stands for.
pub fn is_same(a: &LogicalPlan, b: &LogicalPlan) -> bool {
    if let (LogicalPlan::TableScan(a), LogicalPlan::TableScan(b)) = (a, b) {
        return Table::of(a) == Table::of(b)
            && a.filters == b.filters
            && a.fetch == b.fetch
            && a.projection == b.projection;
    }
    is_equal(a, b) && occurrences(a) == occurrences(b)
}

/// Whether two plans say the same: one text over the same tables.
pub fn is_equal(a: &LogicalPlan, b: &LogicalPlan) -> bool {
    a == b && tables(a) == tables(b)
}

/// Whether two nodes that are not one relation look so alike that nobody can tell whether one was meant: tables of one name, of which
/// a catalog has made a provider for each reader.
pub fn is_unclear(a: &LogicalPlan, b: &LogicalPlan) -> bool {
    let (LogicalPlan::TableScan(a), LogicalPlan::TableScan(b)) = (a, b) else { return false };
    let [of_a, of_b] = [a, b].map(Table::of);
    // What is made within a statement is made where it is meant.
    let is_known = |table: &Table| {
        matches!(table, Table::Provider(provider)
            if provider.is::<MemTable>() || provider.table_type() == TableType::Temporary)
    };
    of_a != of_b
        && !is_known(&of_a)
        && !is_known(&of_b)
        && a.table_name == b.table_name
        && a.table_name.table() != UNNAMED
        && a.projected_schema == b.projected_schema
}

/// The table that a scan reads. A view holds the table that had a name when the view was made.
#[derive(Debug, Clone)]
pub enum Table {
    Provider(Arc<dyn TableProvider>),
    /// One of which the name alone is known.
    Named(String),
}

impl Table {
    pub fn of(scan: &TableScan) -> Self {
        source_as_provider(&scan.source).map_or_else(|_| Self::Named(scan.table_name.to_string()), Self::Provider)
    }

    /// Where it is in memory, which is its own as long as it is held.
    fn address(&self) -> *const () {
        match self {
            Self::Provider(provider) => Arc::as_ptr(provider).cast(),
            Self::Named(_) => std::ptr::null(),
        }
    }
}

impl PartialEq for Table {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Named(a), Self::Named(b)) => a == b,
            _ => self.address() == other.address(),
        }
    }
}

impl Eq for Table {}

impl Hash for Table {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.address().hash(state);
    }
}

/// The tables that a plan reads, in their order.
fn tables(plan: &LogicalPlan) -> Vec<Table> {
    let mut tables = vec![];
    visit(plan, |node| tables.extend(table_of(node)));
    tables
}

fn table_of(node: &LogicalPlan) -> Option<Table> {
    match node {
        LogicalPlan::TableScan(scan) => Some(Table::of(scan)),
        _ => None,
    }
}

/// What the rows of a node depend on that its equality leaves out.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Unsaid {
    table: Option<Table>,
    /// The leaves below a node that draws: it draws anew wherever it is written.
    draws: Vec<Occurrence>,
}

impl Unsaid {
    /// That of a node, beside what its inputs are.
    pub fn of(node: &LogicalPlan) -> Self {
        let draws = if draws_itself(node) { occurrences(node) } else { vec![] };
        Self { table: table_of(node), draws }
    }
}

/// Whether an expression of a node itself draws a random number or the like.
fn draws_itself(node: &LogicalPlan) -> bool {
    let mut draws = false;
    let visited = node.apply_expressions(|expr| {
        draws |= is_volatile(expr);
        Ok(TreeNodeRecursion::Continue)
    });
    debug_assert!(visited.is_ok(), "the closure never fails");
    draws
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

/// The leaves of a plan, in their order.
pub fn occurrences(plan: &LogicalPlan) -> Vec<Occurrence> {
    let mut leaves = vec![];
    visit(plan, |node| {
        if node.inputs().is_empty() {
            leaves.push(Occurrence(Arc::clone(node.schema())));
        }
    });
    leaves
}

/// Goes through the nodes of a plan and of the subqueries in it.
fn visit(plan: &LogicalPlan, mut each: impl FnMut(&LogicalPlan)) {
    let visited = plan.apply_with_subqueries(|node| {
        each(node);
        Ok(TreeNodeRecursion::Continue)
    });
    debug_assert!(visited.is_ok(), "the closure never fails");
}

/// A relation by whose rows is differentiated, as other places of the statement read it.
#[derive(Debug, Clone)]
pub struct Relation {
    /// The node that computes it, or the table.
    pub node: LogicalPlan,
    /// Whether a query is known by its text, since nothing else can read it: a derived table has no name for others.
    ///
    /// ```sql
    /// SELECT grad((SELECT SUM(v * v) FROM (SELECT 2 * x AS v FROM t) AS a), v) FROM (SELECT 2 * x AS v FROM t) AS b
    /// ```
    pub by_text: bool,
}

impl Relation {
    /// A relation that is known by the table or query that its name stands for.
    pub fn named(node: LogicalPlan) -> Self {
        Self { node, by_text: false }
    }

    /// Whether a node is it.
    pub fn is(&self, node: &LogicalPlan) -> bool {
        is_same(node, &self.node) || self.by_text && is_equal(node, &self.node)
    }

    /// Whether a plan or a subquery in it reads it.
    pub fn is_read_in(&self, plan: &LogicalPlan) -> Result<bool> {
        any_node(plan, |node| Ok(self.is(node)))
    }

    /// Whether a name stands for it in a plan: several places read it, or one by a name that is given to a name.
    pub fn has_name_in(&self, plan: &LogicalPlan) -> Result<bool> {
        let mut readers = 0;
        any_node(plan, |node| {
            readers += usize::from(is_same(node, &self.node));
            let renamed = match node {
                LogicalPlan::SubqueryAlias(alias) => matches!(alias.input.as_ref(), LogicalPlan::SubqueryAlias(_)),
                _ => false,
            };
            Ok(readers > 1 || renamed && any_node(node, |node| Ok(is_same(node, &self.node)))?)
        })
    }
}
