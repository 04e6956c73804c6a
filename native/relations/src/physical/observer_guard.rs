//! Guards calls to observers in another language, whose interpreter may have to wait for them before it shuts down.

use datafusion_common::Result;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

use super::lock::locked;

/// The time that the shutdown of an interpreter waits for calls in flight.
const PATIENCE: Duration = Duration::from_secs(5);

/// The calls of a process.
static CALLS: Calls = Calls { state: Mutex::new(State { running: 0, are_over: false }), ended: Condvar::new() };

struct Calls {
    state: Mutex<State>,
    /// Notified when a call has returned.
    ended: Condvar,
}

struct State {
    running: usize,
    are_over: bool,
}

impl Calls {
    fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }
}

/// Calls an observer, unless observers have been shut down.
///
/// # Errors
/// Those of the call.
pub fn notify(call: impl FnOnce() -> Result<()>) -> Result<()> {
    /// Counts the call until it returns or panics.
    struct Running;
    impl Drop for Running {
        fn drop(&mut self) {
            CALLS.state().running -= 1;
            CALLS.ended.notify_all();
        }
    }
    {
        let mut state = CALLS.state();
        if state.are_over {
            // An error would wake a thread that waits for the query while the interpreter shuts down.
            return Ok(());
        }
        state.running += 1;
    }
    let _running = Running;
    call()
}

/// Stops all calls to observers, and waits up to five seconds for those in flight. A language calls it before its
/// interpreter shuts down: a thread that returned to the interpreter afterwards would be killed within this library.
pub fn shutdown_observers() {
    let mut state = CALLS.state();
    state.are_over = true;
    // A call that waits for the caller of this function never ends.
    let _waited = CALLS.ended.wait_timeout_while(state, PATIENCE, |state| state.running > 0);
}
