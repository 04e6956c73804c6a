//! What differs between the versions of DataFusion that this crate compiles with: 54, and 55 with the feature `datafusion-55`.
//!
//! Whoever leaves 54 behind takes its half of each pair away, and then this file.

use datafusion_common::{Result, Statistics, TableReference, UnnestOptions};
use datafusion_expr::{Expr, LogicalPlan, RecursiveQuery, TableScan, TableSource};
use datafusion_physical_plan::ExecutionPlan;
use std::sync::Arc;

/// A recursive query of these terms. DataFusion 55 keeps the schema that the terms have together.
#[cfg(feature = "datafusion-55")]
pub fn recursive_query(
    name: String,
    static_term: Arc<LogicalPlan>,
    recursive_term: Arc<LogicalPlan>,
    is_distinct: bool,
) -> Result<RecursiveQuery> {
    RecursiveQuery::try_new(name, static_term, recursive_term, is_distinct)
}

/// A recursive query of these terms.
#[cfg(not(feature = "datafusion-55"))]
pub fn recursive_query(
    name: String,
    static_term: Arc<LogicalPlan>,
    recursive_term: Arc<LogicalPlan>,
    is_distinct: bool,
) -> Result<RecursiveQuery> {
    Ok(RecursiveQuery { name, static_term, recursive_term, is_distinct })
}

/// A scan of these columns of a table. DataFusion 55 has a builder for it.
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

/// A scan of these columns of a table.
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

/// What is known of the rows of a plan, or of one of its partitions.
#[cfg(feature = "datafusion-55")]
pub fn statistics(plan: &Arc<dyn ExecutionPlan>, partition: Option<usize>) -> Result<Arc<Statistics>> {
    use datafusion_physical_plan::statistics::{StatisticsArgs, StatisticsContext};
    StatisticsContext::new().compute(plan.as_ref(), &StatisticsArgs::new().with_partition(partition))
}

/// What is known of the rows of a plan, or of one of its partitions.
#[cfg(not(feature = "datafusion-55"))]
pub fn statistics(plan: &Arc<dyn ExecutionPlan>, partition: Option<usize>) -> Result<Arc<Statistics>> {
    plan.partition_statistics(partition)
}

/// Whether `unnest` keeps the rows of empty lists. DataFusion 55 has a method for it.
#[cfg(feature = "datafusion-55")]
pub fn preserves_nulls(options: &UnnestOptions) -> bool {
    options.preserve_nulls()
}

/// Whether `unnest` keeps the rows of empty lists.
#[cfg(not(feature = "datafusion-55"))]
pub fn preserves_nulls(options: &UnnestOptions) -> bool {
    options.preserve_nulls
}

/// The method by which a physical node of DataFusion 55 shows its expressions, for one that has none.
#[cfg(feature = "datafusion-55")]
macro_rules! without_expressions {
    () => {
        fn apply_expressions(
            &self,
            _f: &mut dyn for<'a> FnMut(
                &'a std::sync::Arc<dyn datafusion_physical_plan::PhysicalExpr>,
            )
                -> datafusion_common::Result<datafusion_common::tree_node::TreeNodeRecursion>,
        ) -> datafusion_common::Result<datafusion_common::tree_node::TreeNodeRecursion> {
            Ok(datafusion_common::tree_node::TreeNodeRecursion::Continue)
        }
    };
}

/// Nothing: a physical node of DataFusion 54 does not show its expressions.
#[cfg(not(feature = "datafusion-55"))]
macro_rules! without_expressions {
    () => {};
}

pub(crate) use without_expressions;
