//! The differential operators.

use datafusion_common::plan_datafusion_err;
use datafusion_ffi::udf::FFI_ScalarUDF;
use std::ffi::{c_char, c_void};
use std::ptr::null;
use std::sync::Arc;
use xql_autodiff::vocabulary::transform::Transform;
use xql_autodiff::{analyzed_with, functions_with, tangent_with};
use xql_simplify_ffi::FFI_ScalarUDFSimplify;

use crate::boundary::{free_handle, into_handle, str_from_ptr};
use crate::rule::{collect_rules, xql_ffi_rule};

/// `grad`, `jvp`, `vjp` or `stop_gradient` with rules of the user's own.
#[allow(non_camel_case_types)]
pub struct xql_ffi_operator(pub(crate) Arc<OperatorStructs>);

/// The structs that a host imports.
pub struct OperatorStructs {
    udf: FFI_ScalarUDF,
    simplify: FFI_ScalarUDFSimplify,
}

/// Creates the operator of this name with these rules, which may be freed afterwards. `tangent` is the `jvp` by which the analyzer
/// rule replaces calls of the others, `analyzed grad` the operator by which it replaces row-local calls of `grad`, and `special erf` the special function `erf`. Returns null, with the
/// reason in `error`, if there is no such operator, or two of the rules are for one function.
///
/// # Safety
/// `name` is null or a string that ends in NUL; `rules` points to `count` rules; `error` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xql_ffi_operator_new(
    name: *const c_char,
    rules: *const *const xql_ffi_rule,
    count: usize,
    error: *mut *mut c_char,
) -> *mut xql_ffi_operator {
    let make = || {
        // SAFETY: as for this function.
        let (name, rules) = unsafe { (str_from_ptr(name)?, collect_rules(rules, count)?) };
        let operator = match name.split_once(' ') {
            Some(("special", name)) => xql_special::function(name).map(|function| function.as_ref().clone()),
            Some(("analyzed", name)) => Transform::from_key(name).map(|transform| analyzed_with(transform, rules)),
            _ if name == "tangent" => Some(tangent_with(rules)),
            _ => functions_with(&rules).into_iter().find(|operator| operator.name() == name),
        };
        let operator = operator
            .map(Arc::new)
            .ok_or_else(|| plan_datafusion_err!("there is no differential operator called {name:?}"))?;
        Ok(xql_ffi_operator(Arc::new(OperatorStructs { udf: Arc::clone(&operator).into(), simplify: operator.into() })))
    };
    // SAFETY: as for this function.
    unsafe { into_handle(error, make) }
}

/// Frees an operator. Handles that hosts have made of its structs stay valid, and so do capsules that have a share of it.
///
/// # Safety
/// `operator` is null or comes from `xql_ffi_operator_new` and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xql_ffi_operator_free(operator: *mut xql_ffi_operator) {
    // SAFETY: as for this function.
    unsafe { free_handle(operator) }
}

/// Returns the `FFI_ScalarUDF` of an operator, which lives as long, or as a capsule that has a share of it.
///
/// # Safety
/// `operator` is null or comes from `xql_ffi_operator_new`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xql_ffi_scalar_udf(operator: *const xql_ffi_operator) -> *const c_void {
    // SAFETY: as for this function.
    unsafe { operator.as_ref() }.map_or(null(), |operator| (&raw const operator.0.udf).cast())
}

/// Returns the `FFI_ScalarUDFSimplify` of an operator, which lives as long, or as a capsule that has a share of it.
///
/// # Safety
/// `operator` is null or comes from `xql_ffi_operator_new`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xql_ffi_scalar_udf_simplify(operator: *const xql_ffi_operator) -> *const c_void {
    // SAFETY: as for this function.
    unsafe { operator.as_ref() }.map_or(null(), |operator| (&raw const operator.0.simplify).cast())
}

/// Returns the major version of DataFusion whose hosts can import the structs of operators.
#[unsafe(no_mangle)]
pub extern "C" fn xql_ffi_datafusion_version() -> u64 {
    datafusion_ffi::version()
}

/// Returns the release of xql-ffi that this library is of: its functions are those that the Python package of this release calls.
#[unsafe(no_mangle)]
pub extern "C" fn xql_ffi_release() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
