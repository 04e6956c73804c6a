//! Capsules of Python that hold a struct of an operator, and may outlive whatever made them.

use std::collections::HashMap;
use std::ffi::c_void;
use std::panic::catch_unwind;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use crate::operator::{Exported, xql_ffi_operator};

/// What each living capsule points into, by the address of the capsule.
static KEPT: LazyLock<Mutex<HashMap<usize, Arc<Exported>>>> = LazyLock::new(Mutex::default);

/// Keeps the structs of an operator until `xql_ffi_capsule_drop` is called for the capsule, as its destructor.
///
/// # Safety
/// `operator` is null or comes from `xql_ffi_operator_new`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xql_ffi_capsule_keep(capsule: usize, operator: *const xql_ffi_operator) {
    // SAFETY: as for this function.
    if let Some(operator) = unsafe { operator.as_ref() } {
        KEPT.lock().unwrap_or_else(PoisonError::into_inner).insert(capsule, Arc::clone(&operator.0));
    }
}

/// The destructor of a capsule.
#[unsafe(no_mangle)]
pub extern "C" fn xql_ffi_capsule_drop(capsule: *mut c_void) {
    let kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner).remove(&capsule.addr());
    // After the lock is free. There is no one to tell of a panic.
    let _ = catch_unwind(std::panic::AssertUnwindSafe(|| drop(kept))).map_err(std::mem::forget);
}
