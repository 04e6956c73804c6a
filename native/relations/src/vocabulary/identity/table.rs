//! Tables, which are known by their source.

use datafusion_catalog::default_table_source::source_as_provider;
use datafusion_catalog::{MemTable, TableProvider};
use datafusion_expr::{LogicalPlan, TableScan, TableType};
use std::borrow::Cow;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// What DataFusion calls a table that has no name, such as a file that is read as a `DataFrame`.
const UNNAMED: &str = "?table?";

/// The table that a scan reads. A view holds the table that had a name when the view was made.
#[derive(Debug, Clone)]
pub enum Table {
    /// One with a provider, by which it is known.
    Provider(Arc<dyn TableProvider>),
    /// One of which the name alone is known.
    Named(String),
}

impl Table {
    /// Creates the table of a scan.
    pub fn from_scan(scan: &TableScan) -> Self {
        source_as_provider(&scan.source).map_or_else(|_| Self::Named(scan.table_name.to_string()), Self::Provider)
    }

    /// Returns where it is in memory, which is its own as long as it is held. Each reader of a CTE or view has a provider of its own.
    fn address(&self) -> *const () {
        match self {
            Self::Provider(provider) => match provider.get_logical_plan() {
                Some(Cow::Borrowed(common)) => std::ptr::from_ref(common).cast(),
                _ => Arc::as_ptr(provider).cast(),
            },
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

/// Returns the table that a node scans.
pub fn table_of(node: &LogicalPlan) -> Option<Table> {
    match node {
        LogicalPlan::TableScan(scan) => Some(Table::from_scan(scan)),
        _ => None,
    }
}

/// Returns whether two nodes that are not one relation look so alike that nobody can tell whether one was meant: tables of one name,
/// of which a catalog has made a provider for each reader.
pub fn is_unclear(a: &LogicalPlan, b: &LogicalPlan) -> bool {
    let (LogicalPlan::TableScan(a), LogicalPlan::TableScan(b)) = (a, b) else { return false };
    let [of_a, of_b] = [a, b].map(Table::from_scan);
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
