//! The calls to observers, which another language may have to see ended before it ends itself.

use datafusion_common::Result;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

use super::lock::locked;

/// For how long the end of an interpreter waits for the calls that it is in.
const PATIENCE: Duration = Duration::from_secs(5);

/// The calls of a process.
static CALLS: Calls = Calls { state: Mutex::new(State { running: 0, are_over: false }), ended: Condvar::new() };

struct Calls {
    state: Mutex<State>,
    /// Told when a call has ended.
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

/// Runs a call to an observer, unless observers are not called any more.
///
/// # Errors
/// Those of the call.
pub fn told(call: impl FnOnce() -> Result<()>) -> Result<()> {
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
            // An error would wake whoever waits for the query, while the interpreter ends.
            return Ok(());
        }
        state.running += 1;
    }
    let _running = Running;
    call()
}

/// Has no observer called any more, and waits for the calls that are running, no longer than five seconds. A language whose interpreter
/// ends calls it first: a thread that came back to it then would be torn off within this library.
pub fn shutdown_observers() {
    let mut state = CALLS.state();
    state.are_over = true;
    // A call that waits for the caller of this function never ends.
    let _waited = CALLS.ended.wait_timeout_while(state, PATIENCE, |state| state.running > 0);
}
