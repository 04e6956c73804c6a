//! Callbacks to Python for the steps of recursive queries.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::pyarrow::ToPyArrow;
use datafusion::common::Result;
use datafusion::error::DataFusionError;
use pyo3::prelude::*;
use xql_relations::Observer;

/// A callable that takes the name of a query, the number of a step, and its rows as batches of pyarrow.
struct Callable(Py<PyAny>);

impl Observer for Callable {
    fn step(&self, query: &str, step: usize, rows: &[RecordBatch]) -> Result<()> {
        let called = Python::try_attach(|py| {
            let rows = rows.iter().map(|batch| batch.to_pyarrow(py)).collect::<PyResult<Vec<_>>>()?;
            self.0.call1(py, (query, step, rows)).map(drop)
        });
        // Python has shut down already.
        called.unwrap_or(Ok(())).map_err(|error| DataFusionError::External(Box::new(error)))
    }
}

/// Stops all callbacks. Python calls it when it shuts down, since a thread that entered it later would be killed.
pub fn stop_observing(py: Python<'_>) {
    py.detach(xql_relations::shutdown_observers);
}

/// Calls `callable` for every step of queries that are planned from now on; `None` removes it.
pub fn observe(callable: Option<Py<PyAny>>) {
    xql_relations::observe(callable.map(|callable| Arc::new(Callable(callable)) as Arc<dyn Observer>));
}
