//! What other languages load: the operators of `xql-autodiff` as C structs.
//!
//! Each operator is exported as the two structs a host imports, `FFI_ScalarUDF` and `FFI_ScalarUDFSimplify`. They live as
//! long as the library; a host makes its own handles with their `clone`.

mod rule_table;

use datafusion_ffi::udf::FFI_ScalarUDF;
use std::ffi::{CStr, c_char, c_void};
use std::panic::catch_unwind;
use std::ptr::null;
use std::sync::{Arc, LazyLock};
use xql_simplify_ffi::FFI_ScalarUDFSimplify;

struct Operator {
    name: String,
    udf: FFI_ScalarUDF,
    simplify: FFI_ScalarUDFSimplify,
}

static OPERATORS: LazyLock<Vec<Operator>> = LazyLock::new(|| {
    let operators = xql_autodiff::functions().into_iter().map(Arc::new);
    operators
        .map(|function| Operator {
            name: function.name().to_owned(),
            udf: Arc::clone(&function).into(),
            simplify: function.into(),
        })
        .collect()
});

/// The `FFI_ScalarUDF` of the operator with this name; null if there is none.
///
/// # Safety
/// `name` is null or a string that ends in NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xql_ffi_scalar_udf(name: *const c_char) -> *const c_void {
    // SAFETY: as for this function.
    unsafe { export(name, |operator| (&raw const operator.udf).cast()) }
}

/// The `FFI_ScalarUDFSimplify` of the operator with this name; null if there is none.
///
/// # Safety
/// `name` is null or a string that ends in NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xql_ffi_scalar_udf_simplify(name: *const c_char) -> *const c_void {
    // SAFETY: as for this function.
    unsafe { export(name, |operator| (&raw const operator.simplify).cast()) }
}

/// # Safety
/// `name` is null or a string that ends in NUL.
unsafe fn export(name: *const c_char, part: fn(&'static Operator) -> *const c_void) -> *const c_void {
    if name.is_null() {
        return null();
    }
    // SAFETY: the caller gives a string that ends in NUL.
    let name = unsafe { CStr::from_ptr(name) };
    let found = catch_unwind(|| OPERATORS.iter().find(|operator| operator.name.as_bytes() == name.to_bytes()));
    found.ok().flatten().map_or(null(), part)
}
