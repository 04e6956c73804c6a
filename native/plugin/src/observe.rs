//! Callbacks to another language for the steps of recursive queries in sessions of DataFusion 55.

use arrow::array::{RecordBatch, RecordBatchIterator};
use arrow::ffi_stream::FFI_ArrowArrayStream;
use datafusion_common::{DataFusionError, Result, exec_err};
use std::ffi::{CStr, CString, c_char, c_void};
use std::sync::{Arc, PoisonError, RwLock};
use xql_guard::guard;
use xql_session::Observer;

/// A callback, as the parameter of [`xql_ffi_observe`] describes it.
type Callback = unsafe extern "C" fn(
    observer: usize,
    query: *const c_char,
    step: usize,
    rows: *mut c_void,
    error: *mut c_char,
    size: usize,
);

/// The current callback. It is not part of the observers, so plans that have an observer stop calling it when it is removed.
static CALLBACK: RwLock<Option<Callback>> = RwLock::new(None);

/// The size of an error message in bytes, with its final NUL.
const MESSAGE_SIZE: usize = 1 << 12;

/// Calls `callback` for each step of the recursive queries that registered sessions plan from now on, with the number `observer`. Queries
/// that are planned already continue to call it with their own number. Null removes the callback for all of them.
///
/// The callback is called in any thread, also in several at a time. It takes the observer, the name of the query, the number of the step,
/// its rows as a pointer to an `ArrowArrayStream`, which it may take over, and `size` bytes of zeros for the message of an error. An error
/// ends the query.
///
/// # Safety
/// `callback` is null or may be called until another one is set, and by threads that are about to call it then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xql_ffi_observe(
    callback: Option<
        unsafe extern "C" fn(
            observer: usize,
            query: *const c_char,
            step: usize,
            rows: *mut c_void,
            error: *mut c_char,
            size: usize,
        ),
    >,
    observer: usize,
) {
    // Nobody can be notified of a panic.
    let _ = guard("observing queries", || {
        *CALLBACK.write().unwrap_or_else(PoisonError::into_inner) = callback;
        xql_session::observe(callback.map(|_| Arc::new(NumberedObserver(observer)) as Arc<dyn Observer>));
        Ok(())
    });
}

/// Stops all callbacks. Returns once the running calls have ended, at the latest after five seconds. An interpreter calls it first when it
/// shuts down, without a lock that a callback needs.
#[unsafe(no_mangle)]
pub extern "C" fn xql_ffi_stop_observing() {
    // Nobody can be notified of a panic.
    let _ = guard("ending to observe queries", || {
        xql_session::shutdown_observers();
        Ok(())
    });
}

/// An observer that the caller identifies by a number.
struct NumberedObserver(usize);

impl Observer for NumberedObserver {
    fn step(&self, query: &str, step: usize, rows: &[RecordBatch]) -> Result<()> {
        let callback = *CALLBACK.read().unwrap_or_else(PoisonError::into_inner);
        let (Some(callback), Some(first)) = (callback, rows.first()) else { return Ok(()) };
        let query =
            CString::new(query.replace('\0', "\\0")).map_err(|error| DataFusionError::External(Box::new(error)))?;
        let rows: Vec<_> = rows.iter().cloned().map(Ok).collect();
        let batches = RecordBatchIterator::new(rows, first.schema());
        let mut rows = FFI_ArrowArrayStream::new(Box::new(batches));
        let mut error: [c_char; MESSAGE_SIZE] = [0; MESSAGE_SIZE];
        // SAFETY: the caller of `xql_ffi_observe` lets it be called. All that it is given lives until it returns, and it leaves a NUL at the
        // end of the message.
        let message = unsafe {
            callback(self.0, query.as_ptr(), step, (&raw mut rows).cast(), error.as_mut_ptr(), MESSAGE_SIZE);
            CStr::from_ptr(error.as_ptr())
        };
        if message.is_empty() { Ok(()) } else { exec_err!("{}", message.to_string_lossy()) }
    }
}
