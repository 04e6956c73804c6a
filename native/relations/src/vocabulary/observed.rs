//! Work tables whose readers notify an observer.

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion_catalog::cte_worktable::CteWorkTable;
use datafusion_catalog::default_table_source::source_as_provider;
use datafusion_catalog::{Session, TableProvider};
use datafusion_common::Result;
use datafusion_expr::{Expr, LogicalPlan, TableType};
use datafusion_physical_expr::expressions::Column;
use datafusion_physical_plan::projection::ProjectionExec;
use datafusion_physical_plan::{ExecutionPlan, PhysicalExpr};
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use super::names::is_added;
use crate::physical::{ObservedExec, Observer};

static OBSERVER: RwLock<Option<Arc<dyn Observer>>> = RwLock::new(None);

/// Sets the observer of all recursive queries that are planned from now on, in every registered session of the process.
/// `None` removes it. Queries that have been planned keep their observer.
///
/// A training loop is a recursive query, and its steps are those of the training.
pub fn observe(observer: Option<Arc<dyn Observer>>) {
    *OBSERVER.write().unwrap_or_else(PoisonError::into_inner) = observer;
}

/// Who is told of recursive queries that are planned now.
pub fn observer() -> Option<Arc<dyn Observer>> {
    OBSERVER.read().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Returns the columns of a recursive query that an observer sees: all columns of the query, even those that the query
/// itself does not read, such as a loss. Columns that derivatives have added are hidden.
pub fn observed_columns(schema: &SchemaRef) -> Vec<usize> {
    (0..schema.fields().len()).filter(|at| !is_added(schema.field(*at).name())).collect()
}

/// The work table of a recursive query, like [`CteWorkTable`], whose readers notify an observer.
///
/// Every step of a recursive query is read by the next one, and the last by one that gives no rows.
pub struct ObservedWorkTable {
    table: CteWorkTable,
    observer: Arc<dyn Observer>,
}

impl ObservedWorkTable {
    /// Creates the same work table with an observer.
    pub fn new(table: &CteWorkTable, observer: Arc<dyn Observer>) -> Self {
        Self { table: CteWorkTable::new(table.name(), table.schema()), observer }
    }

    /// Returns the name of the recursive query.
    pub fn name(&self) -> &str {
        self.table.name()
    }
}

impl fmt::Debug for ObservedWorkTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ObservedWorkTable").field(&self.table).finish()
    }
}

/// Returns whether a node scans an observed work table.
pub fn is_observed(node: &LogicalPlan) -> bool {
    let LogicalPlan::TableScan(scan) = node else { return false };
    source_as_provider(&scan.source).is_ok_and(|provider| provider.is::<ObservedWorkTable>())
}

#[async_trait]
impl TableProvider for ObservedWorkTable {
    fn schema(&self) -> SchemaRef {
        self.table.schema()
    }

    fn table_type(&self) -> TableType {
        self.table.table_type()
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let input = self.table.scan(state, None, filters, limit).await?;
        let schema = self.schema();
        let observed = ObservedExec::new(self.name(), Arc::clone(&self.observer), observed_columns(&schema), input);
        let Some(projection) = projection else { return Ok(Arc::new(observed)) };
        let columns = projection.iter().map(|index| {
            let name = schema.field(*index).name();
            (Arc::new(Column::new(name, *index)) as Arc<dyn PhysicalExpr>, name.clone())
        });
        Ok(Arc::new(ProjectionExec::try_new(columns.collect::<Vec<_>>(), Arc::new(observed))?))
    }
}
