//! Scans of the table that holds the rows which the last iteration of a recursive query gave.

use arrow::datatypes::SchemaRef;
use datafusion_catalog::cte_worktable::CteWorkTable;
use datafusion_catalog::default_table_source::{provider_as_source, source_as_provider};
use datafusion_common::Result;
use datafusion_expr::{TableScan, TableSource};
use std::sync::Arc;

use super::observed::ObservedWorkTable;

/// Whether a scan reads the work table of the recursive query of this name.
pub fn is_work_table(scan: &TableScan, name: &str) -> bool {
    source_as_provider(&scan.source).is_ok_and(|provider| {
        let plain = provider.downcast_ref::<CteWorkTable>().map(CteWorkTable::name);
        plain.or_else(|| provider.downcast_ref::<ObservedWorkTable>().map(ObservedWorkTable::name)) == Some(name)
    })
}

/// A work table of this name with columns of its own.
pub fn work_table(name: &str, schema: SchemaRef) -> Arc<dyn TableSource> {
    provider_as_source(Arc::new(CteWorkTable::new(name, schema)))
}

/// The column of the table that column number `index` of a scan is.
pub fn source_column(scan: &TableScan, index: usize) -> usize {
    scan.projection.as_ref().and_then(|projection| projection.get(index).copied()).unwrap_or(index)
}

/// The scan of another work table, of the same columns and after them of those `added` that are not among them.
///
/// ```text
/// TableScan: r projection=[step, w]                        the first columns of both tables are the same
/// TableScan: r projection=[step, w, ∂x/∂w]                 added = [2]
/// ```
pub fn rescan(
    scan: TableScan,
    source: &Arc<dyn TableSource>,
    added: impl IntoIterator<Item = usize>,
) -> Result<TableScan> {
    let mut projection: Vec<_> =
        (0..scan.projected_schema.fields().len()).map(|index| source_column(&scan, index)).collect();
    for column in added {
        if !projection.contains(&column) {
            projection.push(column);
        }
    }
    let TableScan { table_name, filters, fetch, .. } = scan;
    TableScan::try_new(table_name, Arc::clone(source), Some(projection), filters, fetch)
}
