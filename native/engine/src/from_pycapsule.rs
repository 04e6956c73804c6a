//! `ScalarUDF.from_pycapsule`, which also imports `simplify` where it is exported.

use datafusion::logical_expr::ScalarUDF;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyType};
use xql_simplify_ffi::SimplifyingScalarUDF;

use crate::method::replace_methods;
use crate::{capsule, scalar_udf};

/// Replaces the static method. Objects that export no `simplify` go to the stock method.
pub fn extend(class: &Bound<'_, PyType>) -> PyResult<()> {
    replace_methods!(class, from_pycapsule, c"from_pycapsule");
    Ok(())
}

fn from_pycapsule<'py>(
    _class: &Bound<'py, PyAny>,
    args: &Bound<'py, PyTuple>,
    kwargs: Option<&Bound<'py, PyDict>>,
    stock: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    match find_exporter(args, kwargs)? {
        Some(exporter) => import(&exporter),
        None => stock.call(args, kwargs),
    }
}

/// Returns the only argument, if it exports a function and its `simplify`.
fn find_exporter<'py>(
    args: &Bound<'py, PyTuple>,
    kwargs: Option<&Bound<'py, PyDict>>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let func = match (args.len(), kwargs.map_or(0, PyDictMethods::len)) {
        (1, 0) => Some(args.get_item(0)?),
        (0, 1) => kwargs.map(|kwargs| kwargs.get_item("func")).transpose()?.flatten(),
        _ => None,
    };
    let Some(func) = func else { return Ok(None) };
    let exports = func.hasattr(capsule::SCALAR_UDF_METHOD)? && func.hasattr(xql_simplify_ffi::METHOD_NAME)?;
    Ok(exports.then_some(func))
}

fn import<'py>(exporter: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    // This one checks the versions, which the next one trusts.
    let simplify = capsule::import_simplify(exporter)?;
    let function = capsule::import_scalar_udf(exporter)?;
    let functions = capsule::import_extra_functions(exporter)?;
    let companions = capsule::import_companions(exporter)?;
    let udf = SimplifyingScalarUDF::new(function, simplify).with_extra_functions(functions).with_companions(companions);
    scalar_udf::to_python(exporter.py(), ScalarUDF::from(udf))
}
