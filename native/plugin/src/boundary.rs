//! Handles, strings and errors across the C boundary.

use datafusion_common::{DataFusionError, Result, plan_datafusion_err};
use std::ffi::{CStr, CString, c_char};
use std::ptr::null_mut;
use xql_guard::guard;

/// The size of the stack on which the requests of callers are served.
const STACK: usize = 64 << 20;

/// Returns a handle to the result of `make`, for [`free_handle`]. Returns null if it fails, with the reason in `error`, for
/// `xql_ffi_string_free`.
///
/// # Safety
/// `error` is null or may be written to.
pub unsafe fn into_handle<T>(error: *mut *mut c_char, make: impl FnOnce() -> Result<T>) -> *mut T {
    // Planners and parsers recurse as deep as statements are, and the caller's thread may have a small stack.
    let make = || stacker::maybe_grow(STACK / 2, STACK, make);
    let reason = match guard("xql-ffi", make) {
        Ok(value) => return Box::into_raw(Box::new(value)),
        Err(DataFusionError::Plan(message) | DataFusionError::Ffi(message)) => message,
        Err(other) => other.strip_backtrace(),
    };
    if !error.is_null() {
        let reason = CString::new(reason.replace('\0', "\\0")).unwrap_or_default();
        // SAFETY: the caller lets `error` be written to.
        unsafe { *error = reason.into_raw() };
    }
    null_mut()
}

/// Frees a handle.
///
/// # Safety
/// `handle` is null or comes from [`into_handle`] and is not used again.
pub unsafe fn free_handle<T>(handle: *mut T) {
    if !handle.is_null() {
        // SAFETY: it was made as a box and is freed once.
        let value = unsafe { Box::from_raw(handle) };
        // Nobody can be notified of a panic.
        let _ = guard("freeing a handle", || {
            drop(value);
            Ok(())
        });
    }
}

/// Returns a string of the caller.
///
/// # Safety
/// `text` is null or a string that ends in NUL and lives for `'a`.
pub unsafe fn str_from_ptr<'a>(text: *const c_char) -> Result<&'a str> {
    if text.is_null() {
        return Err(plan_datafusion_err!("a string is missing"));
    }
    // SAFETY: the caller gives a string that ends in NUL.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|error| plan_datafusion_err!("a string is not UTF-8: {error}"))
}

/// Returns an array of the caller.
///
/// # Safety
/// `items` is null or points to `count` items that live for `'a`.
pub unsafe fn slice_from_ptr<'a, T>(items: *const T, count: usize) -> Result<&'a [T]> {
    match (items.is_null(), count) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(plan_datafusion_err!("{count} items are missing")),
        // SAFETY: the caller gives `count` items.
        (false, _) => Ok(unsafe { std::slice::from_raw_parts(items, count) }),
    }
}

/// Frees the string of an error.
///
/// # Safety
/// `string` is null or comes from this library and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xql_ffi_string_free(string: *mut c_char) {
    if !string.is_null() {
        // SAFETY: it was made by `CString::into_raw` in this library and is freed once.
        drop(unsafe { CString::from_raw(string) });
    }
}
