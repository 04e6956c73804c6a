//! Which nodes are one relation, and which compute the same.
//!
//! DataFusion's own equality of plans leaves out the tables that scans read, and takes two queries of one text for one.
//!
//! ```sql
//! WITH a AS (SELECT 1.0 AS v), b AS (SELECT 1.0 AS v) ...   -- compute the same, and are two relations
//! ```

use datafusion_catalog::default_table_source::source_as_provider;
use datafusion_catalog::{MemTable, TableProvider};
use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_common::{DFSchemaRef, Result};
use datafusion_expr::{LogicalPlan, TableScan, TableType};
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use xql_autodiff::vocabulary::columns::is_volatile;

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
    /// One with a provider, by which it is known.
    Provider(Arc<dyn TableProvider>),
    /// One of which the name alone is known.
    Named(String),
}

impl Table {
    /// The table of a scan.
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
    /// The leaves below a node that draws, and where it stands: it draws anew wherever it is written.
    draws: Option<(Vec<Occurrence>, Place)>,
}

impl Unsaid {
    /// That of a node in a place, beside what its inputs are.
    pub fn of(node: &LogicalPlan, place: &Place) -> Self {
        let draws = draws_itself(node).then(|| (occurrences(node), place.clone()));
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

/// Where a node stands in the query that a name stands for. Queries that read the same look alike in all else.
///
/// ```sql
/// WITH n AS (...), a AS (SELECT 2 * x AS v FROM n), b AS (SELECT 2 * x AS v FROM n) ...
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Place {
    /// The name of the CTE, view or derived table, none outside of all.
    name: Option<String>,
    /// The numbers of the inputs by which one comes from its query to the node.
    path: Vec<usize>,
}

impl Place {
    /// The place of the input of this number of a node that stands here; behind the inputs its subqueries are counted.
    pub fn below(&self, node: &LogicalPlan, input: usize) -> Self {
        match node {
            LogicalPlan::SubqueryAlias(alias) => Self { name: Some(alias.alias.table().to_owned()), path: vec![] },
            _ => Self { name: self.name.clone(), path: self.path.iter().copied().chain([input]).collect() },
        }
    }

    /// Whether two places can be one. Outside of all names a place says nothing.
    fn fits(&self, other: &Self) -> bool {
        self.name.is_none() || other.name.is_none() || self == other
    }
}

/// Goes through the nodes of a plan that stands in a place, and of the subqueries in it, until one is wanted.
#[recursive::recursive]
pub fn any_placed(
    plan: &LogicalPlan,
    place: &Place,
    is: &mut dyn FnMut(&LogicalPlan, &Place) -> Result<bool>,
) -> Result<bool> {
    let mut found = is(plan, place)?;
    let mut number = 0;
    let mut visit = |below: &LogicalPlan| {
        if !found {
            found = any_placed(below, &place.below(plan, number), is)?;
            number += 1;
        }
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    };
    plan.apply_children(&mut visit)?;
    plan.apply_subqueries(&mut visit)?;
    Ok(found)
}

/// A relation by whose rows is differentiated, as other places of the statement read it.
#[derive(Debug, Clone)]
pub struct Relation {
    /// The node that computes it, or the table.
    pub node: LogicalPlan,
    /// Where it stands.
    place: Place,
    /// Whether a query is known by its text, since nothing else can read it: a derived table has no name for others.
    ///
    /// ```sql
    /// SELECT grad((SELECT SUM(v * v) FROM (SELECT 2 * x AS v FROM t) AS a), v) FROM (SELECT 2 * x AS v FROM t) AS b
    /// ```
    by_text: bool,
}

impl Relation {
    /// A relation that is known by the table or query that its name stands for.
    pub fn named(node: LogicalPlan, place: Place) -> Self {
        Self { node, place, by_text: false }
    }

    /// The relation of a node to which one comes by these inputs, in the plan of a node that reads it. What only its FROM reads, by one
    /// name, is known by its text.
    pub fn read_by(plan: &LogicalPlan, node: LogicalPlan, path: impl Iterator<Item = usize>) -> Result<Self> {
        let mut place = Place::default();
        let mut names = 0;
        let mut reader = plan;
        // The path begins below the only input.
        for number in [0].into_iter().chain(path) {
            names += usize::from(matches!(reader, LogicalPlan::SubqueryAlias(_)));
            place = place.below(reader, number);
            let Some(input) = reader.inputs().get(number).copied() else { break };
            reader = input;
        }
        let named = Self::named(node, place);
        let mut readers = 0;
        any_placed(plan, &Place::default(), &mut |node, place| {
            readers += usize::from(named.is(node, place));
            Ok(readers > 1)
        })?;
        Ok(Self { by_text: names == 1 && readers == 1, ..named })
    }

    /// Where it stands.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Whether another relation is the same.
    pub fn is_same(&self, other: &Self) -> bool {
        self.is(&other.node, &other.place)
    }

    /// Whether a node in a place is it.
    pub fn is(&self, node: &LogicalPlan, place: &Place) -> bool {
        let is_named =
            is_same(node, &self.node) && (matches!(node, LogicalPlan::TableScan(_)) || self.place.fits(place));
        is_named || self.by_text && is_equal(node, &self.node)
    }

    /// Whether a plan or a subquery in it reads it.
    pub fn is_read_in(&self, plan: &LogicalPlan) -> Result<bool> {
        any_placed(plan, &Place::default(), &mut |node, place| Ok(self.is(node, place)))
    }

    /// Whether another relation is computed from it.
    pub fn is_part_of(&self, other: &Self) -> Result<bool> {
        any_placed(&other.node, &other.place, &mut |node, place| Ok(self.is(node, place)))
    }

    /// The plan with what stands for the relation in its places.
    pub fn replaced(
        &self,
        plan: LogicalPlan,
        place: &Place,
        by: &dyn Fn(&LogicalPlan) -> Result<LogicalPlan>,
    ) -> Result<LogicalPlan> {
        Ok(self.replaced_below(plan, place, by)?.data)
    }

    #[recursive::recursive]
    fn replaced_below(
        &self,
        plan: LogicalPlan,
        place: &Place,
        by: &dyn Fn(&LogicalPlan) -> Result<LogicalPlan>,
    ) -> Result<Transformed<LogicalPlan>> {
        if self.is(&plan, place) {
            return Ok(Transformed::yes(by(&plan)?));
        }
        let around = plan.clone();
        let mut number = 0;
        let mut next = || {
            number += 1;
            place.below(&around, number - 1)
        };
        plan.map_children(|child| self.replaced_below(child, &next(), by))?
            .transform_data(|plan| plan.map_subqueries(|subquery| self.replaced_below(subquery, &next(), by)))
    }
}
