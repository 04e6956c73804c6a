//! Telling Python of the steps of recursive queries.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::pyarrow::ToPyArrow;
use datafusion::common::Result;
use datafusion::error::DataFusionError;
use pyo3::prelude::*;
use xql_relations::Observer;

/// Something to call with the name of a query, the number of a step and the rows of it, as batches of pyarrow.
struct Callable(Py<PyAny>);

impl Observer for Callable {
    fn step(&self, query: &str, step: usize, rows: &[RecordBatch]) -> Result<()> {
        let called = Python::try_attach(|py| {
            let rows = rows.iter().map(|batch| batch.to_pyarrow(py)).collect::<PyResult<Vec<_>>>()?;
            self.0.call1(py, (query, step, rows)).map(drop)
        });
        // Where Python has ended already, nobody wants to know.
        called.unwrap_or(Ok(())).map_err(|error| DataFusionError::External(Box::new(error)))
    }
}

/// Has nobody called any more. Python calls it when it ends, for a thread that came back to it later would be torn off.
pub fn stop_observing(py: Python<'_>) {
    py.detach(xql_relations::stop_telling);
}

/// Has `callable` called for every step of queries that are planned from now on; `None` for nobody.
pub fn observe(callable: Option<Py<PyAny>>) {
    xql_relations::observe(callable.map(|callable| Arc::new(Callable(callable)) as Arc<dyn Observer>));
}
