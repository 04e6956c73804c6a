//! Scans of the table that holds the rows which the last iteration of a recursive query gave.

use datafusion_catalog::cte_worktable::CteWorkTable;
use datafusion_catalog::default_table_source::source_as_provider;
use datafusion_expr::TableScan;

use super::observed::ObservedWorkTable;

/// Returns whether a scan reads the work table of the recursive query of this name.
pub fn is_work_table(scan: &TableScan, name: &str) -> bool {
    work_table(scan).is_some_and(|table| table == name)
}

/// Returns the name of the recursive query whose work table a scan reads.
pub fn work_table(scan: &TableScan) -> Option<String> {
    let provider = source_as_provider(&scan.source).ok()?;
    let plain = provider.downcast_ref::<CteWorkTable>().map(CteWorkTable::name);
    plain.or_else(|| provider.downcast_ref::<ObservedWorkTable>().map(ObservedWorkTable::name)).map(str::to_owned)
}

/// Returns the column of the table that column number `index` of a scan is.
pub fn source_column(scan: &TableScan, index: usize) -> usize {
    scan.projection.as_ref().and_then(|projection| projection.get(index).copied()).unwrap_or(index)
}
