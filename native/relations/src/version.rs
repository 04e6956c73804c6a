//! Differences between the versions of DataFusion for which this crate compiles: 54, and 55 with the feature
//! `datafusion-55`.
//!
//! To drop 54, remove its half of each pair, and then this file. [`xql_contraction::version`] has the differences for
//! physical nodes.

use datafusion_common::{Result, TableReference, UnnestOptions};
use datafusion_expr::{Expr, LogicalPlan, RecursiveQuery, TableScan, TableSource};
use std::sync::Arc;

pub use xql_contraction::version::{statistics, without_expressions};

/// Returns a recursive query of these terms. DataFusion 55 keeps the schema that the terms have together.
#[cfg(feature = "datafusion-55")]
pub fn recursive_query(
    name: String,
    static_term: Arc<LogicalPlan>,
    recursive_term: Arc<LogicalPlan>,
    is_distinct: bool,
) -> Result<RecursiveQuery> {
    RecursiveQuery::try_new(name, static_term, recursive_term, is_distinct)
}

/// Returns a recursive query of these terms.
#[cfg(not(feature = "datafusion-55"))]
pub fn recursive_query(
    name: String,
    static_term: Arc<LogicalPlan>,
    recursive_term: Arc<LogicalPlan>,
    is_distinct: bool,
) -> Result<RecursiveQuery> {
    Ok(RecursiveQuery { name, static_term, recursive_term, is_distinct })
}

/// Returns a scan of these columns of a table. DataFusion 55 has a builder for it.
#[cfg(feature = "datafusion-55")]
pub fn table_scan(
    table: TableReference,
    source: Arc<dyn TableSource>,
    projection: Vec<usize>,
    filters: Vec<Expr>,
    fetch: Option<usize>,
) -> Result<TableScan> {
    let scan = datafusion_expr::logical_plan::TableScanBuilder::new(table, source);
    scan.with_projection(Some(projection)).with_filters(filters).with_fetch(fetch).build()
}

/// Returns a scan of these columns of a table.
#[cfg(not(feature = "datafusion-55"))]
pub fn table_scan(
    table: TableReference,
    source: Arc<dyn TableSource>,
    projection: Vec<usize>,
    filters: Vec<Expr>,
    fetch: Option<usize>,
) -> Result<TableScan> {
    TableScan::try_new(table, source, Some(projection), filters, fetch)
}

/// Whether DataFusion removes columns that nobody reads within the terms of all recursive queries. 54 leaves those with
/// queries under names as they are.
pub const PRUNES_RECURSIVE_QUERIES: bool = cfg!(feature = "datafusion-55");

/// Whether -0.0 and 0.0 are one key of groups, as they are not of partitions. DataFusion 55 has made them one.
pub const GROUPS_ZEROS: bool = cfg!(feature = "datafusion-55");

/// Returns whether `unnest` keeps the rows of empty lists. DataFusion 55 has a method for it.
#[cfg(feature = "datafusion-55")]
pub fn preserves_nulls(options: &UnnestOptions) -> bool {
    options.preserve_nulls()
}

/// Returns whether `unnest` keeps the rows of empty lists.
#[cfg(not(feature = "datafusion-55"))]
pub fn preserves_nulls(options: &UnnestOptions) -> bool {
    options.preserve_nulls
}
