//! Import of capsules of other libraries.

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;
use std::sync::Arc;

use datafusion::logical_expr::{ScalarUDF, ScalarUDFImpl};
use datafusion_ffi::udf::FFI_ScalarUDF;
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use xql_simplify_ffi::FFI_ScalarUDFSimplify;

use crate::scalar_udf;

/// The method that returns the capsule of a scalar function.
pub const SCALAR_UDF_METHOD: &str = "__datafusion_scalar_udf__";

/// The method that returns the functions that replace calls of a differential operator, as objects of `datafusion._internal.ScalarUDF`: the `jvp`
/// where they see through relations, and the operator that knows that all other columns are constant.
pub const COMPANIONS_METHOD: &str = "__xql_ffi_companions__";

/// Imports the function that `exporter` exports.
///
/// The struct has no version of its own; its version is that of the struct which [`import_simplify`] imports.
pub fn import_scalar_udf(exporter: &Bound<'_, PyAny>) -> PyResult<Arc<dyn ScalarUDFImpl>> {
    let (_capsule, exported) = open_capsule(exporter, SCALAR_UDF_METHOD, c"datafusion_scalar_udf")?;
    // SAFETY: a capsule of this name holds an `FFI_ScalarUDF` and lives until the end of this function.
    let exported = unsafe { exported.cast::<FFI_ScalarUDF>().as_ref() };
    Ok(exported.into())
}

/// Imports the `simplify` that `exporter` exports beside its function.
pub fn import_simplify(exporter: &Bound<'_, PyAny>) -> PyResult<FFI_ScalarUDFSimplify> {
    let (_capsule, exported) = open_capsule(exporter, xql_simplify_ffi::METHOD_NAME, xql_simplify_ffi::CAPSULE_NAME)?;
    // SAFETY: a capsule of this name holds an `FFI_ScalarUDFSimplify` and lives until the end of this function.
    unsafe { FFI_ScalarUDFSimplify::import(exported) }.map_err(|error| PyRuntimeError::new_err(error.to_string()))
}

/// Imports the functions that the answers of `simplify` may call, if there are any.
pub fn import_extra_functions(exporter: &Bound<'_, PyAny>) -> PyResult<Vec<Arc<ScalarUDF>>> {
    call_functions_method(exporter, xql_simplify_ffi::FUNCTIONS_METHOD_NAME)
}

/// Imports the functions by which the analyzer rule replaces calls of the exported one, if there are any.
pub fn import_companions(exporter: &Bound<'_, PyAny>) -> PyResult<Vec<Arc<ScalarUDF>>> {
    call_functions_method(exporter, COMPANIONS_METHOD)
}

/// Calls a method that returns functions, if there is one.
fn call_functions_method(exporter: &Bound<'_, PyAny>, method: &str) -> PyResult<Vec<Arc<ScalarUDF>>> {
    if !exporter.hasattr(method)? {
        return Ok(vec![]);
    }
    exporter.call_method0(method)?.try_iter()?.map(|function| scalar_udf::from_python(&function?)).collect()
}

/// Calls a method that returns a capsule, and opens the capsule.
fn open_capsule<'py>(
    exporter: &Bound<'py, PyAny>,
    method: &str,
    name: &CStr,
) -> PyResult<(Bound<'py, PyCapsule>, NonNull<c_void>)> {
    let exported = exporter.call_method0(method)?;
    let capsule = exported.cast_into::<PyCapsule>().map_err(|error| {
        let class = error.into_inner().get_type();
        PyTypeError::new_err(format!("{method}() gave {class}, not a capsule"))
    })?;
    let pointer = capsule
        .pointer_checked(Some(name))
        .map_err(|_| PyValueError::new_err(format!("{method}() gave a capsule that is not named {name:?}")))?;
    Ok((capsule, pointer.cast()))
}
