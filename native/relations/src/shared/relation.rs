//! A table whose rows are those of a plan.

use arrow::datatypes::{DataType, Field, SchemaBuilder, SchemaRef};
use async_trait::async_trait;
use chrono::{DateTime, Utc};
use datafusion_catalog::default_table_source::{provider_as_source, source_as_provider};
use datafusion_catalog::{Session, TableProvider};
use datafusion_common::Result;
use datafusion_common::tree_node::TreeNodeRecursion;
use datafusion_common::{TableReference, internal_err};
use datafusion_expr::{Expr, LogicalPlan, LogicalPlanBuilder, TableScan, TableSource, TableType};
use datafusion_physical_plan::ExecutionPlan;
use std::any::Any;
use std::sync::{Arc, Weak};
use tokio::sync::Mutex;

use super::exec::{Shared, SharedExec};

/// A relation that several places of a plan read and one computes.
#[derive(Debug)]
pub struct SharedRelation {
    name: String,
    plan: LogicalPlan,
    schema: SchemaRef,
    numbered: bool,
    planned: Mutex<Option<Planned>>,
}

/// The physical plan of a relation, as long as a plan that is being made or executed has it.
#[derive(Debug)]
struct Planned {
    /// When the execution started that it was planned for. A later one reads its tables anew.
    started: Option<DateTime<Utc>>,
    shared: Weak<Shared>,
}

impl SharedRelation {
    /// The relation that `plan` computes, under a name for `EXPLAIN`.
    pub fn new(name: impl Into<String>, plan: LogicalPlan) -> Self {
        let schema = Arc::clone(plan.schema().inner());
        Self { name: name.into(), plan, schema, numbered: false, planned: Mutex::new(None) }
    }

    /// The same with one more column that numbers the rows, in no order.
    pub fn numbered(name: impl Into<String>, plan: LogicalPlan, row: &str) -> Self {
        let relation = Self::new(name, plan);
        let mut schema = SchemaBuilder::from(relation.schema.as_ref());
        schema.push(Field::new(row, DataType::UInt64, false));
        Self { schema: Arc::new(schema.finish()), numbered: true, ..relation }
    }

    /// Whether the last column is not of the plan but numbers its rows.
    pub fn is_numbered(&self) -> bool {
        self.numbered
    }

    /// The shared relation that a node scans.
    pub fn scanned_by(node: &LogicalPlan) -> Option<Arc<Self>> {
        let LogicalPlan::TableScan(scan) = node else { return None };
        Self::scanned(scan)
    }

    /// Whether a plan or a subquery in it scans a shared relation.
    pub fn is_scanned_in(plan: &LogicalPlan) -> Result<bool> {
        let mut found = false;
        plan.apply_with_subqueries(|node| {
            found = found || Self::scanned_by(node).is_some();
            Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })?;
        Ok(found)
    }

    /// The shared relation that a scan reads.
    pub fn scanned(scan: &TableScan) -> Option<Arc<Self>> {
        let provider: Arc<dyn Any + Send + Sync> = source_as_provider(&scan.source).ok()?;
        provider.downcast().ok()
    }

    /// What the relation is computed by.
    pub fn plan(&self) -> &LogicalPlan {
        &self.plan
    }

    /// The table, of which every scan reads the same rows.
    pub fn into_source(self) -> Arc<dyn TableSource> {
        provider_as_source(Arc::new(self))
    }
}

/// A scan of all columns of a shared relation.
pub fn scan(name: impl Into<TableReference>, source: &Arc<dyn TableSource>) -> Result<LogicalPlan> {
    LogicalPlanBuilder::scan(name, Arc::clone(source), None)?.build()
}

#[async_trait]
impl TableProvider for SharedRelation {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Temporary
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let started = state.execution_props().query_execution_start_time;
        // Scans are planned side by side. The second one waits for the plan of the first.
        let mut planned = self.planned.lock().await;
        let known = planned.as_ref().filter(|planned| planned.started == started);
        let known = known.and_then(|planned| planned.shared.upgrade());
        let is_first = known.is_none();
        let shared = match known {
            Some(shared) => shared,
            None => {
                let plan = state.create_physical_plan(&self.plan).await?;
                if plan.schema().fields().len() + usize::from(self.numbered) != self.schema.fields().len() {
                    return internal_err!("the plan of {} has other columns than the relation", self.name);
                }
                let shared = Arc::new(Shared::new(self.name.clone(), Arc::clone(&self.schema), self.numbered, plan));
                *planned = Some(Planned { started, shared: Arc::downgrade(&shared) });
                shared
            }
        };
        Ok(Arc::new(SharedExec::new(shared, projection.cloned(), is_first)?))
    }
}
