//! Unparses scans of tables, CTEs, work tables and table functions.

use datafusion_catalog::cte_worktable::CteWorkTable;
use datafusion_catalog::default_table_source::source_as_provider;
use datafusion_common::{Result, TableReference, plan_datafusion_err};
use datafusion_expr::TableScan;
use std::sync::Arc;
use xql_relations::SharedRelation;

use super::expressions::SelectScope;
use super::names::table_sql;
use super::select::{Item, Select};
use super::shared_relation::write_shared_relation;
use super::writer::QueryWriter;
use crate::expr::to_sql;
use crate::names::quote_if_needed;
use crate::plan::CatalogTable;

/// Writes a scan under the table's name or an alias.
pub fn write_table_scan(writer: &mut QueryWriter, node: &TableScan, alias: Option<&TableReference>) -> Result<Select> {
    let hint = alias.map_or_else(|| node.table_name.table(), TableReference::table);
    if let Some(relation) = SharedRelation::scanned(node) {
        let (table, columns) = write_shared_relation(writer, &relation)?;
        return Ok(writer.scan_table(
            &table,
            projected_columns(node, &columns),
            Arc::clone(&node.projected_schema),
            hint,
        ));
    }
    let provider = source_as_provider(&node.source).ok();
    if let Some(work) = provider.as_ref().and_then(|provider| provider.downcast_ref::<CteWorkTable>()) {
        let open = writer.open_recursions.iter_mut().rev().find(|open| open.name == work.name());
        let open = open.ok_or_else(|| plan_datafusion_err!("{} is read outside of its recursive term", work.name()))?;
        open.reads += 1;
        let (table, columns) = (open.sql_name.clone(), projected_columns(node, &open.columns));
        return Ok(writer.scan_table(&table, columns, Arc::clone(&node.projected_schema), hint));
    }
    let call = provider.and_then(|provider| provider.downcast_ref::<CatalogTable>()?.call.clone());
    let schema = Arc::clone(&node.projected_schema);
    // DataFusion names a call by its function and "()"; a table may have that name.
    let hint = if call.is_some() { hint.trim_end_matches("()") } else { hint };
    let alias = writer.fresh_alias(hint);
    let is_named = call.is_none() && node.table_name.table() == alias;
    let table = call.unwrap_or_else(|| table_sql(&node.table_name));
    let from = if is_named { table } else { format!("{table} AS {}", quote_if_needed(&alias)) };
    let items = schema.fields().iter().map(|field| Item::column(&alias, field.name())).collect();
    let mut select = Select::new(schema, Some(from), items, hint);
    for filter in &node.filters {
        let condition = to_sql(filter, &mut SelectScope::from_input(writer, &select))?;
        select = select.with_filter(condition);
    }
    Ok(select)
}

/// Returns the columns that a scan projects.
fn projected_columns(node: &TableScan, columns: &[String]) -> Vec<String> {
    let column = |index: usize| node.projection.as_ref().map_or(index, |projection| projection[index]);
    (0..node.projected_schema.fields().len()).map(|index| columns[column(index)].clone()).collect()
}
