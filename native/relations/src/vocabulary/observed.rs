//! Work tables whose readers tell an observer what they read.

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion_catalog::cte_worktable::CteWorkTable;
use datafusion_catalog::{Session, TableProvider};
use datafusion_common::{Result, internal_err};
use datafusion_execution::{SendableRecordBatchStream, TaskContext};
use datafusion_expr::{Expr, TableType};
use datafusion_physical_expr::expressions::Column;
use datafusion_physical_plan::projection::ProjectionExec;
use datafusion_physical_plan::stream::RecordBatchStreamAdapter;
use datafusion_physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PhysicalExpr, PlanProperties};
use futures::{StreamExt, stream};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::names::is_added;

/// Whoever wants to know what a recursive query computes while it runs.
pub trait Observer: Send + Sync {
    /// The rows of a step of the recursive query called `query`, before the next step begins. Step 0 is the static term.
    ///
    /// # Errors
    ///
    /// An error ends the query.
    fn step(&self, query: &str, step: usize, rows: &[RecordBatch]) -> Result<()>;
}

/// The work table of a recursive query, as [`CteWorkTable`] is it, whose readers tell an observer what they read.
///
/// Every step of a recursive query is read by the next one, and the last by one that gives no rows.
pub struct ObservedWorkTable {
    table: CteWorkTable,
    observer: Arc<dyn Observer>,
}

impl ObservedWorkTable {
    pub fn new(table: &CteWorkTable, observer: Arc<dyn Observer>) -> Self {
        Self { table: CteWorkTable::new(table.name(), table.schema()), observer }
    }

    /// The name of the recursive query.
    pub fn name(&self) -> &str {
        self.table.name()
    }
}

impl fmt::Debug for ObservedWorkTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ObservedWorkTable").field(&self.table).finish()
    }
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
        // The observer sees all columns, also those that the query itself does not read, as a loss often is.
        let input = self.table.scan(state, None, filters, limit).await?;
        let observed = ObservedExec {
            query: self.name().to_owned(),
            observer: Arc::clone(&self.observer),
            steps: Arc::default(),
            input,
        };
        let Some(projection) = projection else { return Ok(Arc::new(observed)) };
        let schema = self.schema();
        let columns = projection.iter().map(|index| {
            let name = schema.field(*index).name();
            (Arc::new(Column::new(name, *index)) as Arc<dyn PhysicalExpr>, name.clone())
        });
        Ok(Arc::new(ProjectionExec::try_new(columns.collect::<Vec<_>>(), Arc::new(observed))?))
    }
}

/// Reads a work table and tells an observer of the rows once they have been read.
struct ObservedExec {
    query: String,
    observer: Arc<dyn Observer>,
    /// How many steps have been read.
    steps: Arc<AtomicUsize>,
    input: Arc<dyn ExecutionPlan>,
}

impl fmt::Debug for ObservedExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObservedExec").field("query", &self.query).field("input", &self.input).finish_non_exhaustive()
    }
}

impl DisplayAs for ObservedExec {
    fn fmt_as(&self, _t: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "ObservedExec: {}", self.query)
    }
}

impl ExecutionPlan for ObservedExec {
    fn name(&self) -> &str {
        "ObservedExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn with_new_children(self: Arc<Self>, mut children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        let (Some(input), true) = (children.pop(), children.is_empty()) else {
            return internal_err!("ObservedExec has one input");
        };
        // A recursive query makes its recursive term anew for every step, which is counted across them.
        let (query, observer, steps) = (self.query.clone(), Arc::clone(&self.observer), Arc::clone(&self.steps));
        Ok(Arc::new(Self { query, observer, steps, input }))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let input = self.input.execute(partition, context)?;
        let (schema, query, observer) = (input.schema(), self.query.clone(), Arc::clone(&self.observer));
        let step = self.steps.fetch_add(1, Ordering::Relaxed);
        // Columns that derivatives have added are nobody's business.
        let shown: Vec<usize> = (0..schema.fields().len()).filter(|at| !is_added(schema.field(*at).name())).collect();
        let read = stream::try_unfold((input, vec![]), move |(mut input, mut rows)| {
            let (query, observer, shown) = (query.clone(), Arc::clone(&observer), shown.clone());
            async move {
                if let Some(batch) = input.next().await.transpose()? {
                    rows.push(batch.project(&shown)?);
                    return Ok(Some((batch, (input, rows))));
                }
                observer.step(&query, step, &rows)?;
                Ok(None)
            }
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, read)))
    }
}
