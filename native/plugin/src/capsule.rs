//! Python capsules of structs of this library, which may outlive the objects that made them.
//!
//! The context of a capsule is a share of its content, which the destructor of the capsule releases. This library is not
//! linked to Python, so the caller passes the one function of Python that it needs for that.

use std::any::Any;
use std::ffi::c_void;
use std::ptr::null;
use std::sync::{Arc, OnceLock};
use xql_guard::guard;

use crate::operator::xql_ffi_operator;

/// `PyCapsule_GetContext`.
pub type GetContext = unsafe extern "C" fn(capsule: *mut c_void) -> *mut c_void;

/// The function of the running Python.
static GET_CONTEXT: OnceLock<GetContext> = OnceLock::new();

/// The content that a capsule keeps alive.
type Share = Arc<dyn Any + Send + Sync>;

/// Creates the context of a capsule that keeps this alive.
pub fn context(share: Share, get_context: GetContext) -> *const c_void {
    GET_CONTEXT.get_or_init(|| get_context);
    Box::into_raw(Box::new(share)).cast_const().cast()
}

/// Returns a share of an operator, for `PyCapsule_SetContext` of a capsule with the destructor `xql_ffi_capsule_destructor`.
/// `get_context` is `PyCapsule_GetContext`. Returns null if one of them is null.
///
/// # Safety
/// `operator` is null or comes from `xql_ffi_operator_new`; `get_context` is null or what it is to be.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xql_ffi_capsule_context(
    operator: *const xql_ffi_operator,
    get_context: Option<unsafe extern "C" fn(capsule: *mut c_void) -> *mut c_void>,
) -> *const c_void {
    // SAFETY: as for this function.
    let (Some(operator), Some(get_context)) = (unsafe { operator.as_ref() }, get_context) else { return null() };
    let share: Share = Arc::clone(&operator.0) as Share;
    context(share, get_context)
}

/// Destroys a capsule.
///
/// # Safety
/// `capsule` is null or a capsule that is being destroyed and whose context is null or comes from `xql_ffi_capsule_context`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xql_ffi_capsule_destructor(capsule: *mut c_void) {
    let Some(get_context) = GET_CONTEXT.get() else { return };
    if capsule.is_null() {
        return;
    }
    // SAFETY: `get_context` takes capsules, also in their destructors.
    let context = unsafe { get_context(capsule) }.cast::<Share>();
    if !context.is_null() {
        // SAFETY: the context is a boxed share, and given back once, with its capsule.
        let share = unsafe { Box::from_raw(context) };
        // Nobody can be notified of a panic.
        let _ = guard("freeing what a capsule holds", || {
            drop(share);
            Ok(())
        });
    }
}
