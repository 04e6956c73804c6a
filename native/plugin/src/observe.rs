//! Telling another language of the steps of recursive queries in sessions of DataFusion 55.

use arrow::array::{RecordBatch, RecordBatchIterator};
use arrow::ffi_stream::FFI_ArrowArrayStream;
use datafusion_common::{DataFusionError, Result, exec_err};
use std::ffi::{CStr, CString, c_char, c_void};
use std::sync::{Arc, PoisonError, RwLock};
use xql_guard::guard;
use xql_session::Observer;

/// What is called, as the parameter of [`xql_ffi_observe`] says.
type Callback = unsafe extern "C" fn(
    observer: usize,
    query: *const c_char,
    step: usize,
    rows: *mut c_void,
    error: *mut c_char,
    size: usize,
);

/// Nobody, as long as there is none. It is not a part of the observers, so that plans that have one stop to call it.
static CALLBACK: RwLock<Option<Callback>> = RwLock::new(None);

/// Bytes of a message about an error, with the NUL at its end.
const MESSAGE: usize = 1 << 12;

/// Has `callback` called for each step of the recursive queries that registered sessions plan from now on, with the number `observer`. Those
/// that are planned by then go on to call it with theirs. Null for nobody: then they do not either.
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
    // There is no one to tell of a panic.
    let _ = guard("observing queries", || {
        *CALLBACK.write().unwrap_or_else(PoisonError::into_inner) = callback;
        xql_session::observe(callback.map(|_| Arc::new(Numbered(observer)) as Arc<dyn Observer>));
        Ok(())
    });
}

/// Has nobody told of steps any more. It returns once the calls that are running have ended, at the latest after five seconds. An
/// interpreter that ends calls it first, and without a lock that a callback needs.
#[unsafe(no_mangle)]
pub extern "C" fn xql_ffi_stop_observing() {
    // There is no one to tell of a panic.
    let _ = guard("ending to observe queries", || {
        xql_session::stop_telling();
        Ok(())
    });
}

/// An observer that the caller knows by a number.
struct Numbered(usize);

impl Observer for Numbered {
    fn step(&self, query: &str, step: usize, rows: &[RecordBatch]) -> Result<()> {
        let callback = *CALLBACK.read().unwrap_or_else(PoisonError::into_inner);
        let (Some(callback), Some(first)) = (callback, rows.first()) else { return Ok(()) };
        let query =
            CString::new(query.replace('\0', "\\0")).map_err(|error| DataFusionError::External(Box::new(error)))?;
        let rows: Vec<_> = rows.iter().cloned().map(Ok).collect();
        let batches = RecordBatchIterator::new(rows, first.schema());
        let mut rows = FFI_ArrowArrayStream::new(Box::new(batches));
        let mut error: [c_char; MESSAGE] = [0; MESSAGE];
        // SAFETY: the caller of `xql_ffi_observe` lets it be called. All that it is given lives until it returns, and it leaves a NUL at the
        // end of the message.
        let message = unsafe {
            callback(self.0, query.as_ptr(), step, (&raw mut rows).cast(), error.as_mut_ptr(), MESSAGE);
            CStr::from_ptr(error.as_ptr())
        };
        if message.is_empty() { Ok(()) } else { exec_err!("{}", message.to_string_lossy()) }
    }
}
