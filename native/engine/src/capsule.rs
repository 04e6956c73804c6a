//! What other libraries export in capsules.

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

/// The method that gives the capsule of a scalar function.
pub const SCALAR_UDF_METHOD: &str = "__datafusion_scalar_udf__";

/// The method that gives what calls of a differential operator become, as objects of `datafusion._internal.ScalarUDF`: the `jvp`
/// where they see through relations, and the operator that knows that all other columns are constant.
pub const COMPANIONS_METHOD: &str = "__xql_ffi_companions__";

/// The function `exporter` exports.
///
/// The struct has no version of its own; whoever exports it beside [`simplify`] vouches for it there.
pub fn scalar_udf(exporter: &Bound<'_, PyAny>) -> PyResult<Arc<dyn ScalarUDFImpl>> {
    let (_capsule, exported) = contents(exporter, SCALAR_UDF_METHOD, c"datafusion_scalar_udf")?;
    // SAFETY: a capsule of this name holds an `FFI_ScalarUDF` and lives until the end of this function.
    let exported = unsafe { exported.cast::<FFI_ScalarUDF>().as_ref() };
    Ok(exported.into())
}

/// The `simplify` that `exporter` exports beside its function.
pub fn simplify(exporter: &Bound<'_, PyAny>) -> PyResult<FFI_ScalarUDFSimplify> {
    let (_capsule, exported) = contents(exporter, xql_simplify_ffi::METHOD_NAME, xql_simplify_ffi::CAPSULE_NAME)?;
    // SAFETY: a capsule of this name holds an `FFI_ScalarUDFSimplify` and lives until the end of this function.
    unsafe { FFI_ScalarUDFSimplify::import(exported) }.map_err(|error| PyRuntimeError::new_err(error.to_string()))
}

/// The functions of `exporter` that the answers of its `simplify` may call, if it has any.
pub fn extra_functions(exporter: &Bound<'_, PyAny>) -> PyResult<Vec<Arc<ScalarUDF>>> {
    functions(exporter, xql_simplify_ffi::FUNCTIONS_METHOD_NAME)
}

/// The functions by which the analyzer rule replaces calls of the one that `exporter` exports, if it has any.
pub fn companions(exporter: &Bound<'_, PyAny>) -> PyResult<Vec<Arc<ScalarUDF>>> {
    functions(exporter, COMPANIONS_METHOD)
}

/// The functions that `method` gives, if there is one.
fn functions(exporter: &Bound<'_, PyAny>, method: &str) -> PyResult<Vec<Arc<ScalarUDF>>> {
    if !exporter.hasattr(method)? {
        return Ok(vec![]);
    }
    exporter.call_method0(method)?.try_iter()?.map(|function| scalar_udf::from_python(&function?)).collect()
}

/// The capsule that `method` gives, and what it holds.
fn contents<'py>(
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
