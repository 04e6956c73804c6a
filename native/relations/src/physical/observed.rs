//! Scans the work table of a recursive query, and notifies an observer of each step.

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion_common::{Result, internal_err};
use datafusion_execution::{SendableRecordBatchStream, TaskContext};
use datafusion_physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet, RecordOutput};
use datafusion_physical_plan::stream::RecordBatchStreamAdapter;
use datafusion_physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use futures::{StreamExt, stream};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::batch::projected;
use super::observer_guard::notify;
use crate::version::without_expressions;

/// Watches the steps of recursive queries while they run.
pub trait Observer: Send + Sync {
    /// Receives the rows of a step of the recursive query called `query`, before the next step begins. Step 0 is the
    /// static term.
    ///
    /// # Errors
    ///
    /// An error ends the query.
    fn step(&self, query: &str, step: usize, rows: &[RecordBatch]) -> Result<()>;
}

/// The observer of a recursive query that is run by a node of ours.
#[derive(Clone)]
pub struct Observed {
    observer: Arc<dyn Observer>,
    /// The columns that the observer is shown.
    shown: Vec<usize>,
    /// Their names.
    schema: SchemaRef,
}

impl fmt::Debug for Observed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observed").field("schema", &self.schema).finish_non_exhaustive()
    }
}

impl Observed {
    /// Creates an observer that is shown these of the columns of a query, under the names that they have in a schema.
    ///
    /// # Errors
    /// If there are no such columns.
    pub fn new(observer: Arc<dyn Observer>, columns: &SchemaRef, shown: Vec<usize>) -> Result<Self> {
        let schema = Arc::new(columns.project(&shown)?);
        Ok(Self { observer, shown, schema })
    }

    /// Notifies the observer of the rows of a step.
    ///
    /// # Errors
    /// Those of the observer.
    pub fn step(&self, query: &str, step: usize, rows: &[RecordBatch]) -> Result<()> {
        let shown = rows.iter().map(|batch| projected(batch, &self.shown, &self.schema)).collect::<Result<Vec<_>>>()?;
        notify(|| self.observer.step(query, step, &shown))
    }
}

/// Scans a work table, and notifies an observer of the rows once they have been read.
pub struct ObservedExec {
    query: String,
    observer: Arc<dyn Observer>,
    /// The columns that the observer is shown.
    shown: Vec<usize>,
    /// How many steps have been read.
    steps: Arc<AtomicUsize>,
    input: Arc<dyn ExecutionPlan>,
    metrics: ExecutionPlanMetricsSet,
}

impl ObservedExec {
    /// Creates a reader of the work table of the recursive query called `query`, which shows an observer these columns.
    pub fn new(
        query: impl Into<String>,
        observer: Arc<dyn Observer>,
        shown: Vec<usize>,
        input: Arc<dyn ExecutionPlan>,
    ) -> Self {
        let (steps, metrics) = (Arc::default(), ExecutionPlanMetricsSet::new());
        Self { query: query.into(), observer, shown, steps, input, metrics }
    }
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

    without_expressions!();

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
        // A recursive query resets its recursive term for every step, so the copies share the counter.
        Ok(Arc::new(Self {
            query: self.query.clone(),
            observer: Arc::clone(&self.observer),
            shown: self.shown.clone(),
            steps: Arc::clone(&self.steps),
            input,
            metrics: ExecutionPlanMetricsSet::new(),
        }))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let input = self.input.execute(partition, context)?;
        let (schema, query, observer) = (input.schema(), self.query.clone(), Arc::clone(&self.observer));
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let step = self.steps.fetch_add(1, Ordering::Relaxed);
        let shown = self.shown.clone();
        let read = stream::try_unfold((input, vec![]), move |(mut input, mut rows)| {
            let (query, observer, shown, metrics) =
                (query.clone(), Arc::clone(&observer), shown.clone(), metrics.clone());
            async move {
                if let Some(batch) = input.next().await.transpose()? {
                    rows.push(batch.project(&shown)?);
                    return Ok(Some((batch.record_output(&metrics), (input, rows))));
                }
                let _timer = metrics.elapsed_compute().timer();
                notify(|| observer.step(&query, step, &rows))?;
                Ok(None)
            }
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, read)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{AsArray, Int64Array};
    use arrow::datatypes::{DataType, Field, Int64Type, Schema};
    use datafusion::datasource::memory::MemorySourceConfig;
    use datafusion_common::exec_err;
    use datafusion_physical_plan::collect;
    use datafusion_physical_plan::execution_plan::reset_plan_states;
    use std::sync::Mutex;

    /// Notes the values of the only column that it is shown, and fails at a step of three rows.
    #[derive(Default)]
    struct Notes(Mutex<Vec<(String, usize, Vec<i64>)>>);

    impl Observer for Notes {
        fn step(&self, query: &str, step: usize, rows: &[RecordBatch]) -> Result<()> {
            let values = rows.iter().flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().values().to_vec());
            let values: Vec<_> = values.collect();
            if values.len() == 3 {
                return exec_err!("three rows");
            }
            self.0.lock().expect("nobody panics").push((query.to_owned(), step, values));
            Ok(())
        }
    }

    fn observed(values: Vec<i64>, notes: &Arc<Notes>) -> Result<Arc<dyn ExecutionPlan>> {
        let fields = ["hidden", "shown"].map(|name| Field::new(name, DataType::Int64, false));
        let schema = Arc::new(Schema::new(fields.to_vec()));
        let (hidden, shown) = (vec![0; values.len()], values);
        let columns = [hidden, shown].map(|values| Arc::new(Int64Array::from(values)) as _);
        let batch = RecordBatch::try_new(Arc::clone(&schema), columns.to_vec())?;
        let input = MemorySourceConfig::try_new_exec(&[vec![batch]], schema, None)?;
        Ok(Arc::new(ObservedExec::new("fit", Arc::clone(notes) as _, vec![1], input)))
    }

    #[tokio::test]
    async fn steps_are_counted_across_the_plans_of_one_query() -> Result<()> {
        let notes = Arc::new(Notes::default());
        let first = observed(vec![1, 2], &notes)?;
        let second = reset_plan_states(Arc::clone(&first))?;
        for plan in [&first, &second] {
            collect(Arc::clone(plan), Arc::default()).await?;
        }
        let seen = notes.0.lock().expect("nobody panics").clone();
        assert_eq!(seen, [("fit".to_owned(), 0, vec![1, 2]), ("fit".to_owned(), 1, vec![1, 2])]);
        assert_eq!(first.metrics().and_then(|metrics| metrics.output_rows()), Some(2));
        Ok(())
    }

    #[tokio::test]
    async fn an_error_of_the_observer_ends_the_query() -> Result<()> {
        let plan = observed(vec![1, 2, 3], &Arc::default())?;
        let error = collect(plan, Arc::default()).await.expect_err("the observer fails");
        assert!(error.to_string().contains("three rows"), "{error}");
        Ok(())
    }
}
