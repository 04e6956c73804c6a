//! Views over tables that have been replaced since: a view holds the table that had a name when the view was made.
//!
//! ```sql
//! CREATE VIEW v AS SELECT val FROM t;
//! CREATE OR REPLACE TABLE t ...          -- v has the rows that it had before
//! ```
//!
//! The text of a query has no name for such a table. It has one for the view.

use datafusion_catalog::TableProvider;
use datafusion_catalog::default_table_source::{provider_as_source, source_as_provider};
use datafusion_common::config::ConfigOptions;
use datafusion_common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion_common::{Result, TableReference, plan_datafusion_err};
use datafusion_expr::{Expr, LogicalPlan, LogicalPlanBuilder, SubqueryAlias, TableScan};
use std::cell::RefCell;
use std::sync::Arc;
use xql_relations::{SharedRelation, each_rewritten};

use super::catalog::{Held, Table, resolved};
use super::derive::typed;
use super::planner::Planner;

/// A view that is read by its name.
struct View {
    /// In full.
    name: String,
    /// Its query, typed.
    query: LogicalPlan,
    /// What stands for the view where it is read.
    table: Arc<Table>,
}

/// A typed plan in which views over tables that no name has are read by their names.
///
/// # Errors
/// If the plan reads such a table otherwise, since a derivative sees through a view.
pub fn with_held_views(plan: LogicalPlan, planner: &Planner, options: &ConfigOptions) -> Result<LogicalPlan> {
    let mut views = vec![];
    for (name, view) in planner.views() {
        if let Some(query) = &view.view
            && nameless(query, planner, &[])?.is_some()
        {
            let query = typed(query.clone(), options)?;
            let table = Arc::new(Table::of(Arc::clone(query.schema().inner())));
            views.push(View { name, query, table });
        }
    }
    if views.is_empty() {
        return Ok(plan);
    }
    let named = each_rewritten(plan, &mut |plan| plan.transform_down_with_subqueries(|node| by_name(node, &views)))?;
    match nameless(&named.data, planner, &views)? {
        Some((table, held)) => Err(refused(&table, held)),
        None => Ok(named.data),
    }
}

/// A view by its name, if a node is one as it was planned.
fn by_name(node: LogicalPlan, views: &[View]) -> Result<Transformed<LogicalPlan>> {
    let scan = |view: &View, name: &TableReference| {
        let source = provider_as_source(Arc::clone(&view.table) as Arc<dyn TableProvider>);
        LogicalPlanBuilder::scan(name.clone(), source, None)
    };
    let is_query = |view: &View, plan: &LogicalPlan| view.query == *plan && tables(&view.query) == tables(plan);
    if let LogicalPlan::SubqueryAlias(SubqueryAlias { input, alias, .. }) = &node
        && let Some(view) = views.iter().find(|view| view.name == resolved(alias) && is_query(view, input))
    {
        return Ok(Transformed::new(scan(view, alias)?.build()?, true, TreeNodeRecursion::Jump));
    }
    // The rows of a variable are those of the query that computes it.
    let view = views.iter().find(|view| is_query(view, &node));
    let Some((view, name)) = view.and_then(|view| Some((view, reference(&view.name)?))) else {
        return Ok(Transformed::no(node));
    };
    let scan = scan(view, &name)?;
    let columns = scan.schema().columns().into_iter().zip(node.schema().iter());
    let columns =
        columns.map(|(column, (table, field))| Expr::Column(column).alias_qualified(table.cloned(), field.name()));
    let columns = columns.collect::<Vec<_>>();
    Ok(Transformed::new(scan.project(columns)?.build()?, true, TreeNodeRecursion::Jump))
}

/// A table or view by its name in full, if no part of the name has a dot.
fn reference(name: &str) -> Option<TableReference> {
    match name.split('.').collect::<Vec<_>>().as_slice() {
        ["datafusion", "public", table] => Some(TableReference::bare(*table)),
        [catalog, schema, table] => Some(TableReference::full(*catalog, *schema, *table)),
        _ => None,
    }
}

/// Where the tables that a plan reads are in memory, in their order. The equality of plans leaves them out.
fn tables(plan: &LogicalPlan) -> Vec<*const ()> {
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

/// A table in a plan, or in the shared relations that it reads, that is not known to be the one of its name. The views are.
fn nameless(plan: &LogicalPlan, planner: &Planner, views: &[View]) -> Result<Option<(TableReference, Held)>> {
    let found = RefCell::new(None);
    SharedRelation::any_node_in(plan, &|node| {
        let LogicalPlan::TableScan(scan) = node else { return false };
        let held = held_in(scan, planner, views);
        let is_held = held.is_some();
        *found.borrow_mut() = held.map(|held| (scan.table_name.clone(), held));
        is_held
    })?;
    Ok(found.into_inner())
}

fn held_in(scan: &TableScan, planner: &Planner, views: &[View]) -> Option<Held> {
    let provider = source_as_provider(&scan.source).ok()?;
    let table = provider.downcast_ref::<Table>().filter(|table| table.call.is_none())?;
    if views.iter().any(|view| std::ptr::eq(view.table.as_ref(), table)) {
        return None;
    }
    // Within a script a table may have been replaced after a view had been planned.
    table.held.or_else(|| (!planner.has_name(table, &scan.table_name)).then_some(Held::Replaced))
}

fn refused(table: &TableReference, held: Held) -> datafusion_common::DataFusionError {
    match held {
        Held::Replaced => plan_datafusion_err!(
            "text cannot have a derivative that sees through a view over the table {table}: the view has the rows of a table that \
             another one called {table} has replaced since. Make the view anew, by CREATE OR REPLACE VIEW"
        ),
        Held::Perhaps => plan_datafusion_err!(
            "text cannot have a derivative that sees through a view over the table {table}: a view keeps the table that had the name \
             when the view was made, and the session does not say whether this is the table called {table} now. Write the query of \
             the view in its place"
        ),
    }
}
