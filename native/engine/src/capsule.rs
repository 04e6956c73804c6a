//! What other libraries export in capsules.

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;
use std::sync::Arc;

use datafusion::logical_expr::ScalarUDFImpl;
use datafusion_ffi::udf::FFI_ScalarUDF;
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use xql_simplify_ffi::FFI_ScalarUDFSimplify;

/// The method that gives the capsule of a scalar function.
pub const SCALAR_UDF_METHOD: &str = "__datafusion_scalar_udf__";

/// The function `exporter` exports.
///
/// The struct has no version of its own; whoever exports it beside [`simplify`] vouches for it there.
pub fn scalar_udf(exporter: &Bound<'_, PyAny>) -> PyResult<Arc<dyn ScalarUDFImpl>> {
    let capsule = capsule(exporter, SCALAR_UDF_METHOD)?;
    let exported = pointer(&capsule, c"datafusion_scalar_udf")?;
    // SAFETY: a capsule of this name holds an `FFI_ScalarUDF` and lives until the end of this function.
    let exported = unsafe { exported.cast::<FFI_ScalarUDF>().as_ref() };
    Ok(exported.into())
}

/// The `simplify` that `exporter` exports beside its function.
pub fn simplify(exporter: &Bound<'_, PyAny>) -> PyResult<FFI_ScalarUDFSimplify> {
    let capsule = capsule(exporter, xql_simplify_ffi::METHOD_NAME)?;
    let exported = pointer(&capsule, xql_simplify_ffi::CAPSULE_NAME)?;
    // SAFETY: a capsule of this name holds an `FFI_ScalarUDFSimplify` and lives until the end of this function.
    unsafe { FFI_ScalarUDFSimplify::import(exported) }
        .map_err(|error| PyRuntimeError::new_err(error.to_string()))
}

fn capsule<'py>(exporter: &Bound<'py, PyAny>, method: &str) -> PyResult<Bound<'py, PyCapsule>> {
    let exported = exporter.call_method0(method)?;
    exported.cast_into::<PyCapsule>().map_err(|error| {
        let exported = error.into_inner();
        PyTypeError::new_err(format!(
            "{method}() gave {}, not a capsule",
            exported.get_type()
        ))
    })
}

fn pointer(capsule: &Bound<'_, PyCapsule>, name: &CStr) -> PyResult<NonNull<c_void>> {
    Ok(capsule.pointer_checked(Some(name))?.cast())
}
