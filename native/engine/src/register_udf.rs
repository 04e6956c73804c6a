//! `SessionContext.register_udf`, which adds the rules of differential operators to the session.

use std::ffi::CStr;
use std::iter;
use std::sync::Arc;

use datafusion::logical_expr::ScalarUDF;
use datafusion_python::context::PySessionContext;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple};
use xql_autodiff::Differential;
use xql_simplify_ffi::SimplifyingScalarUDF;

use crate::method::Method;

/// The method that was there before; if the session then has a differential operator, it has the rules too.
pub struct RegisterUdf;

static STOCK: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

impl Method for RegisterUdf {
    const NAME: &CStr = c"register_udf";

    fn stock() -> &'static PyOnceLock<Py<PyAny>> {
        &STOCK
    }

    fn call<'py>(
        this: &Bound<'py, PyAny>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
        stock: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let with_this: Vec<_> = iter::once(this.clone()).chain(args).collect();
        let registered = stock.call(PyTuple::new(this.py(), with_this)?, kwargs)?;
        xql_relations::add_rules(&this.cast::<PySessionContext>()?.borrow().ctx, recognize);
        Ok(registered)
    }
}

/// The differential operator that an imported function is.
fn recognize(function: &ScalarUDF) -> Option<Differential> {
    let imported = function.inner().downcast_ref::<SimplifyingScalarUDF>()?;
    imported.companion().map(|tangent| Differential { tangent: Arc::clone(tangent) })
}
