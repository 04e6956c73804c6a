//! Scans of batches that are bound to a plan before each execution.

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion_common::{Result, internal_err};
use datafusion_execution::{SendableRecordBatchStream, TaskContext};
use datafusion_physical_expr::EquivalenceProperties;
use datafusion_physical_plan::coop::CooperativeExec;
use datafusion_physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion_physical_plan::stream::RecordBatchStreamAdapter;
use datafusion_physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties};
use futures::stream;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::batch::projected;
use crate::version::without_expressions;

/// An identifier that a plan and all of its copies share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(u64);

impl Id {
    /// Returns an identifier that is unique in the process.
    pub fn next() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        Self(COUNT.fetch_add(1, Ordering::Relaxed))
    }
}

/// Binds the inputs of a plan, so it can be executed.
pub trait BindInputs: fmt::Debug + Send + Sync {
    /// Returns the plan with its input rows. All of its nodes are reset.
    ///
    /// # Errors
    /// If the plan cannot be put together again.
    fn bound(&self, plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>>;
}

/// A scan of rows that are bound when the plan is executed. It may be executed any number of times.
#[derive(Debug, Clone)]
pub struct BatchScanExec {
    name: String,
    id: Id,
    projection: Vec<usize>,
    /// The rows, with all columns.
    rows: Option<Arc<[RecordBatch]>>,
    properties: Arc<PlanProperties>,
}

impl BatchScanExec {
    /// Creates a scan of the rows with an identifier, which have the columns of a schema. `None` projects all columns.
    pub fn new(name: impl Into<String>, id: Id, schema: &SchemaRef, projection: Option<Vec<usize>>) -> Result<Self> {
        let projection = projection.unwrap_or_else(|| (0..schema.fields().len()).collect());
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::new(schema.project(&projection)?)),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Ok(Self { name: name.into(), id, projection, rows: None, properties: Arc::new(properties) })
    }

    /// Returns the identifier of the rows.
    pub fn id(&self) -> Id {
        self.id
    }

    /// Binds the rows.
    pub fn with_rows(&self, rows: Arc<[RecordBatch]>) -> Self {
        Self { rows: Some(rows), ..self.clone() }
    }
}

/// Returns whether a plan is nothing but such a scan.
pub fn is_given(plan: &Arc<dyn ExecutionPlan>) -> bool {
    match plan.children().as_slice() {
        [input] if plan.is::<CooperativeExec>() => is_given(input),
        _ => plan.is::<BatchScanExec>(),
    }
}

impl DisplayAs for BatchScanExec {
    fn fmt_as(&self, _t: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "BatchScanExec: {}", self.name)
    }
}

impl ExecutionPlan for BatchScanExec {
    fn name(&self) -> &str {
        "BatchScanExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![]
    }

    without_expressions!();

    fn with_new_children(self: Arc<Self>, _children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(&self, _partition: usize, _context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let Some(rows) = self.rows.clone() else { return internal_err!("{} has been given no rows", self.name) };
        let (projection, schema) = (self.projection.clone(), self.schema());
        let named = Arc::clone(&schema);
        let read = (0..rows.len()).map(move |index| projected(&rows[index], &projection, &named));
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, stream::iter(read))))
    }
}
