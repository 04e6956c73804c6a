//! Views over tables that have been replaced: a view holds the table that had a name when the view was created.
//!
//! ```sql
//! CREATE VIEW v AS SELECT val FROM t;
//! CREATE OR REPLACE TABLE t ...          -- v has the rows that it had before
//! ```
//!
//! Text cannot refer to such a table, but it can refer to the view.

use datafusion_catalog::TableProvider;
use datafusion_catalog::default_table_source::{provider_as_source, source_as_provider};
use datafusion_common::config::ConfigOptions;
use datafusion_common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion_common::{Result, TableReference, plan_datafusion_err};
use datafusion_expr::{Expr, LogicalPlan, LogicalPlanBuilder, SubqueryAlias, TableScan};
use std::cell::RefCell;
use std::sync::Arc;
use xql_relations::{SharedRelation, each_rewritten};

use super::catalog::{CatalogTable, Staleness, full_name};
use super::derive::coerce_types;
use super::planner::Planner;

/// A view that has to be read by its name.
struct StaleView {
    /// Its full name.
    name: String,
    /// Its query, with coerced types.
    query: LogicalPlan,
    /// The table that replaces its query.
    table: Arc<CatalogTable>,
}

/// Replaces the queries of views over tables without a name by scans of the views.
///
/// # Errors
/// If the plan still scans such a table, as it does where a derivative sees through the view.
pub fn read_stale_views_by_name(plan: LogicalPlan, planner: &Planner, options: &ConfigOptions) -> Result<LogicalPlan> {
    let mut views = vec![];
    for (name, view) in planner.views() {
        if let Some(query) = &view.view
            && find_stale_table(query, planner, &[])?.is_some()
        {
            let query = coerce_types(query.clone(), options)?;
            let table = Arc::new(CatalogTable::new(Arc::clone(query.schema().inner())));
            views.push(StaleView { name, query, table });
        }
    }
    if views.is_empty() {
        return Ok(plan);
    }
    let named =
        each_rewritten(plan, &mut |plan| plan.transform_down_with_subqueries(|node| replace_view(node, &views)))?;
    match find_stale_table(&named.data, planner, &views)? {
        Some((table, staleness)) => Err(stale_error(&table, staleness)),
        None => Ok(named.data),
    }
}

/// Replaces a node by a scan of a view, if it is the view's query.
fn replace_view(node: LogicalPlan, views: &[StaleView]) -> Result<Transformed<LogicalPlan>> {
    let scan = |view: &StaleView, name: &TableReference| {
        let source = provider_as_source(Arc::clone(&view.table) as Arc<dyn TableProvider>);
        LogicalPlanBuilder::scan(name.clone(), source, None)
    };
    let is_query = |view: &StaleView, plan: &LogicalPlan| {
        view.query == *plan && scanned_tables(&view.query) == scanned_tables(plan)
    };
    if let LogicalPlan::SubqueryAlias(SubqueryAlias { input, alias, .. }) = &node
        && let Some(view) = views.iter().find(|view| view.name == full_name(alias) && is_query(view, input))
    {
        return Ok(Transformed::new(scan(view, alias)?.build()?, true, TreeNodeRecursion::Jump));
    }
    // The rows of a variable are the query itself, without an alias.
    let view = views.iter().find(|view| is_query(view, &node));
    let Some((view, name)) = view.and_then(|view| Some((view, parse_reference(&view.name)?))) else {
        return Ok(Transformed::no(node));
    };
    let scan = scan(view, &name)?;
    let columns = scan.schema().columns().into_iter().zip(node.schema().iter());
    let columns =
        columns.map(|(column, (table, field))| Expr::Column(column).alias_qualified(table.cloned(), field.name()));
    let columns = columns.collect::<Vec<_>>();
    Ok(Transformed::new(scan.project(columns)?.build()?, true, TreeNodeRecursion::Jump))
}

/// Parses a full name, if no part of it has a dot.
fn parse_reference(name: &str) -> Option<TableReference> {
    match name.split('.').collect::<Vec<_>>().as_slice() {
        ["datafusion", "public", table] => Some(TableReference::bare(*table)),
        [catalog, schema, table] => Some(TableReference::full(*catalog, *schema, *table)),
        _ => None,
    }
}

/// Returns the addresses of the tables that a plan scans, in order, which the equality of plans ignores.
fn scanned_tables(plan: &LogicalPlan) -> Vec<*const ()> {
    let mut found = vec![];
    let visited = plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node {
            found.extend(source_as_provider(&scan.source).ok().map(|provider| Arc::as_ptr(&provider).cast()));
        }
        Ok(TreeNodeRecursion::Continue)
    });
    debug_assert!(visited.is_ok(), "the closure never fails");
    found
}

/// Finds a table in a plan, or in the shared relations that it scans, that may not have its name. Scans of the views are none.
fn find_stale_table(
    plan: &LogicalPlan,
    planner: &Planner,
    views: &[StaleView],
) -> Result<Option<(TableReference, Staleness)>> {
    let found = RefCell::new(None);
    SharedRelation::any_node_in(plan, &|node| {
        let LogicalPlan::TableScan(scan) = node else { return false };
        let staleness = staleness_of(scan, planner, views);
        let is_stale = staleness.is_some();
        *found.borrow_mut() = staleness.map(|staleness| (scan.table_name.clone(), staleness));
        is_stale
    })?;
    Ok(found.into_inner())
}

fn staleness_of(scan: &TableScan, planner: &Planner, views: &[StaleView]) -> Option<Staleness> {
    let provider = source_as_provider(&scan.source).ok()?;
    let table = provider.downcast_ref::<CatalogTable>().filter(|table| table.call.is_none())?;
    if views.iter().any(|view| std::ptr::eq(view.table.as_ref(), table)) {
        return None;
    }
    // A script may have replaced a table after it has planned a view over it.
    table.staleness.or_else(|| (!planner.has_name(table, &scan.table_name)).then_some(Staleness::Replaced))
}

fn stale_error(table: &TableReference, staleness: Staleness) -> datafusion_common::DataFusionError {
    match staleness {
        Staleness::Replaced => plan_datafusion_err!(
            "text cannot have a derivative that sees through a view over the table {table}: the view has the rows of a table that \
             another one called {table} has replaced since. Make the view anew, by CREATE OR REPLACE VIEW"
        ),
        Staleness::Unknown => plan_datafusion_err!(
            "text cannot have a derivative that sees through a view over the table {table}: a view keeps the table that had the name \
             when the view was made, and the session does not say whether this is the table called {table} now. Write the query of \
             the view in its place"
        ),
    }
}
