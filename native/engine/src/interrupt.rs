//! Calls that Ctrl-C interrupts.
//!
//! Python handles signals in its main thread, between two of its instructions. DataFusion looks for them once a second while a query
//! is executed, but not while it plans one, which is one step to it. So the call is made by another thread, and the main thread waits.

use std::ffi::c_long;
use std::panic::resume_unwind;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use pyo3::exceptions::{PyKeyboardInterrupt, PyRuntimeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use xql_relations::Interruption;

/// The interval in which signals are checked.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(100);

/// The usual size of the main thread's stack.
const STACK: usize = 8 << 20;

/// Calls `function` so that Ctrl-C interrupts it.
///
/// Execution and planning are then interrupted as well; planning checks for it at each of its steps.
pub fn call_interruptibly<'py>(
    function: &Bound<'py, PyAny>,
    args: &Bound<'py, PyTuple>,
    kwargs: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = function.py();
    if !is_main_thread(py)? {
        return function.call(args, kwargs);
    }
    let (sender, receiver) = channel();
    let identity = Arc::new(Mutex::new(None));
    let interruption = Interruption::default();
    let call = {
        let (function, args) = (function.clone().unbind(), args.clone().unbind());
        let kwargs = kwargs.map(|kwargs| kwargs.clone().unbind());
        let (identity, interruption) = (Arc::clone(&identity), interruption.clone());
        move || {
            Python::attach(move |py| {
                set_thread(&identity, this_thread(py).ok());
                let called = interruption
                    .watched(|| function.call(py, args.bind(py), kwargs.as_ref().map(|kwargs| kwargs.bind(py))));
                set_thread(&identity, None);
                // Nobody waits after an interruption.
                let _ = sender.send(called);
            });
        }
    };
    let worker = thread::Builder::new().name("xql-ffi-planning".to_owned()).stack_size(STACK).spawn(call);
    let worker = worker.map_err(|error| PyRuntimeError::new_err(format!("no thread to plan a query in: {error}")))?;
    let receiver = Mutex::new(receiver);
    loop {
        let received = py.detach(|| {
            let receiver = receiver.lock().map_err(|_| RecvTimeoutError::Disconnected)?;
            receiver.recv_timeout(SIGNAL_INTERVAL)
        });
        match received {
            Ok(called) => return called.map(|value| value.into_bound(py)),
            Err(RecvTimeoutError::Timeout) => {
                if let Err(interrupted) = py.check_signals() {
                    interruption.interrupt();
                    raise_interrupt(py, &identity);
                    return Err(interrupted);
                }
            }
            // The thread has panicked, and the exception is that of a call without a thread of its own.
            Err(RecvTimeoutError::Disconnected) => match py.detach(|| worker.join()) {
                Err(panic) => resume_unwind(panic),
                Ok(()) => return Err(PyRuntimeError::new_err("the thread that plans a query gave no result")),
            },
        }
    }
}

fn is_main_thread(py: Python<'_>) -> PyResult<bool> {
    let threading = py.import("threading")?;
    threading.call_method0("main_thread")?.getattr("ident")?.eq(threading.call_method0("get_ident")?)
}

fn this_thread(py: Python<'_>) -> PyResult<c_long> {
    py.import("threading")?.call_method0("get_ident")?.extract()
}

fn set_thread(identity: &Mutex<Option<c_long>>, thread: Option<c_long>) {
    if let Ok(mut identity) = identity.lock() {
        *identity = thread;
    }
}

/// Raises the interruption in a thread, where DataFusion finds it when it next checks for signals.
fn raise_interrupt(py: Python<'_>, identity: &Mutex<Option<c_long>>) {
    if let Ok(identity) = identity.lock()
        && let Some(thread) = *identity
    {
        let exception = py.get_type::<PyKeyboardInterrupt>();
        // SAFETY: it takes the number of any thread, or of none, and an exception class.
        unsafe { ffi::PyThreadState_SetAsyncExc(thread, exception.as_ptr()) };
    }
}
