//! `datafusion._internal.ScalarUDF` objects of Rust functions.

use datafusion::execution::SessionStateBuilder;
use datafusion::logical_expr::ScalarUDF;
use datafusion::prelude::SessionContext;
use datafusion_python::context::PySessionContext;
use pyo3::prelude::*;

/// The Python object of `udf`.
///
/// Its class is private to `datafusion-python`, but a session gives such objects for the functions it has.
pub fn to_python<'py>(py: Python<'py>, udf: ScalarUDF) -> PyResult<Bound<'py, PyAny>> {
    let name = udf.name().to_owned();
    let session = SessionContext::new_with_state(SessionStateBuilder::new().build());
    session.register_udf(udf);
    Bound::new(py, PySessionContext::from(session))?.call_method1("udf", (name,))
}
