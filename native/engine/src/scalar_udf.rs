//! `datafusion._internal.ScalarUDF` objects of Rust functions.

use std::sync::Arc;

use datafusion::execution::{FunctionRegistry, SessionStateBuilder};
use datafusion::logical_expr::ScalarUDF;
use datafusion::prelude::SessionContext;
use datafusion_python::context::PySessionContext;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

/// Creates the Python object of `udf`.
///
/// Its class is private to `datafusion-python`, but a session gives such objects for the functions it has.
pub fn to_python<'py>(py: Python<'py>, udf: ScalarUDF) -> PyResult<Bound<'py, PyAny>> {
    let name = udf.name().to_owned();
    let session = empty_session();
    session.register_udf(udf);
    Bound::new(py, PySessionContext::from(session))?.call_method1("udf", (name,))
}

/// Returns the function of such a Python object, by registering it with a session.
pub fn from_python(object: &Bound<'_, PyAny>) -> PyResult<Arc<ScalarUDF>> {
    let session = empty_session();
    Bound::new(object.py(), PySessionContext::from(session.clone()))?.call_method1("register_udf", (object,))?;
    let name: String = object.getattr("name")?.extract()?;
    session.udf(&name).map_err(|error| PyRuntimeError::new_err(error.to_string()))
}

fn empty_session() -> SessionContext {
    SessionContext::new_with_state(SessionStateBuilder::new().build())
}
