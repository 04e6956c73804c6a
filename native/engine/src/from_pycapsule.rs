//! `ScalarUDF.from_pycapsule`, which takes `simplify` along where it is exported.

use datafusion::logical_expr::ScalarUDF;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyDict, PyTuple};
use xql_simplify_ffi::SimplifyingScalarUDF;

use crate::{capsule, scalar_udf};

/// Puts a function in place of the static method `ScalarUDF.from_pycapsule` of `module`.
///
/// For what exports no `simplify` it is the method that was there before.
pub fn install(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let name = intern!(py, "from_pycapsule");
    let class = module.getattr(intern!(py, "ScalarUDF"))?;
    let stock = class.getattr(name)?.unbind();
    let from_pycapsule = PyCFunction::new_closure(
        py,
        Some(c"from_pycapsule"),
        // What `inspect.signature` reads.
        Some(c"from_pycapsule(func)\n--\n\n"),
        move |args: &Bound<'_, PyTuple>, kwargs: Option<&Bound<'_, PyDict>>| {
            let py = args.py();
            match exporter(args, kwargs)? {
                Some(exporter) => import(&exporter).map(Bound::unbind),
                None => stock.call(py, args, kwargs),
            }
        },
    )?;
    class.setattr(name, from_pycapsule)
}

/// The argument, if it exports a function and its `simplify`.
fn exporter<'py>(
    args: &Bound<'py, PyTuple>,
    kwargs: Option<&Bound<'py, PyDict>>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let func = match kwargs {
        Some(kwargs) => kwargs.get_item("func")?,
        None => args.get_item(0).ok(),
    };
    let Some(func) = func else { return Ok(None) };
    let exports = func.hasattr(capsule::SCALAR_UDF_METHOD)? && func.hasattr(xql_simplify_ffi::METHOD_NAME)?;
    Ok(exports.then_some(func))
}

fn import<'py>(exporter: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    // The first checks the versions, which the second takes on trust.
    let simplify = capsule::simplify(exporter)?;
    let function = capsule::scalar_udf(exporter)?;
    let functions = capsule::functions(exporter)?;
    let tangent = capsule::tangent(exporter)?;
    let udf = SimplifyingScalarUDF::new(function, simplify).with_extra_functions(functions).with_companion(tangent);
    scalar_udf::to_python(exporter.py(), ScalarUDF::from(udf))
}
