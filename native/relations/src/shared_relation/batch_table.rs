//! Tables whose rows are bound while a plan is executed.

use arrow::datatypes::{Field, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion_catalog::default_table_source::{provider_as_source, source_as_provider};
use datafusion_catalog::{Session, TableProvider};
use datafusion_common::{Result, TableReference};
use datafusion_expr::{Expr, LogicalPlan, LogicalPlanBuilder, TableScan, TableSource, TableType};
use datafusion_physical_plan::ExecutionPlan;
use std::any::Any;
use std::sync::Arc;

use crate::physical::{BatchScanExec, Id};

/// The input table of the iterations of a recursive query. Each iteration is executed with other rows.
#[derive(Debug, Clone)]
pub struct Given {
    name: String,
    id: Id,
    schema: SchemaRef,
}

impl Given {
    /// Creates a table of this name with these columns.
    pub fn new(name: impl Into<String>, schema: SchemaRef) -> Self {
        Self { name: name.into(), id: Id::next(), schema }
    }

    /// Returns the identifier of the rows.
    pub fn id(&self) -> Id {
        self.id
    }

    /// Returns its columns.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Returns the table with further columns after its own. Scans of the original table do not see them.
    pub fn with_further(&self, fields: impl IntoIterator<Item = Field>) -> Self {
        let further = fields.into_iter().map(Arc::new);
        let schema = Schema::new(self.schema.fields().iter().cloned().chain(further).collect::<Vec<_>>());
        Self { schema: Arc::new(schema), ..self.clone() }
    }

    /// Returns the table that a scan reads.
    pub fn scanned(scan: &TableScan) -> Option<Self> {
        let provider: Arc<dyn Any + Send + Sync> = source_as_provider(&scan.source).ok()?;
        Some(provider.downcast::<Self>().ok()?.as_ref().clone())
    }

    /// Returns the table as what scans read.
    pub fn source(&self) -> Arc<dyn TableSource> {
        provider_as_source(Arc::new(self.clone()))
    }

    /// Returns a scan of all columns.
    pub fn scan(&self) -> Result<LogicalPlan> {
        let table = TableReference::bare(self.name.as_str());
        LogicalPlanBuilder::scan(table, self.source(), None)?.build()
    }
}

#[async_trait]
impl TableProvider for Given {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Temporary
    }

    async fn scan(
        &self,
        _state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(BatchScanExec::new(self.name.as_str(), self.id, &self.schema, projection.cloned())?))
    }
}
