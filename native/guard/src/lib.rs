//! Panics as errors, and enough of a stack.
//!
//! What differentiates runs in the process of a host, which expects an error of bad input and no unwinding across a C boundary.
//! [`guard`] is around all that a host calls, and [`on_stack_of`] around what goes deep in a thread of the host.

#![deny(missing_docs)]

use std::any::Any;
use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::fmt::Display;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once};

use datafusion_common::{DataFusionError, Result};

/// Runs `work`; a panic becomes an error that says what was being done, where it panicked and why. Nothing is printed.
///
/// The first call puts a panic hook in front of the one that is there. It keeps silent about panics within `work` on this
/// thread, which are told by the error, and leaves all others to the hook behind it.
///
/// # Errors
/// That of `work`, and [`DataFusionError::Ffi`] for a panic.
pub fn guard<T>(what: impl Display, work: impl FnOnce() -> Result<T>) -> Result<T> {
    silence_guarded_panics();
    let outer = GUARDED.replace(true);
    PLACE.set(None);
    let outcome = catch_unwind(AssertUnwindSafe(work));
    GUARDED.set(outer);
    outcome.unwrap_or_else(|panic| {
        let place = PLACE.take().map(|place| format!(" at {place}")).unwrap_or_default();
        Err(DataFusionError::Ffi(format!("{what} panicked{place}: {}", panic_message(panic))))
    })
}

/// Tells work that nobody waits for it any longer, which then ends with an error.
#[derive(Debug, Clone, Default)]
pub struct Interruption(Arc<AtomicBool>);

impl Interruption {
    /// Nobody waits any longer.
    pub fn interrupt(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Watches it in this thread from here on.
    pub fn watch(&self) {
        WATCHED.set(Some(self.clone()));
    }

    /// Runs `work`, which watches it.
    pub fn watched<T>(&self, work: impl FnOnce() -> T) -> T {
        let outer = WATCHED.replace(Some(self.clone()));
        let outcome = work();
        WATCHED.set(outer);
        outcome
    }
}

/// Tells the work of an interruption when it is dropped: whoever waits for an outcome holds it meanwhile.
#[derive(Debug)]
pub struct Waiting(Interruption);

impl Waiting {
    /// For the outcome of work that watches this interruption.
    pub fn new(interruption: &Interruption) -> Self {
        Self(interruption.clone())
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.interrupt();
    }
}

/// Ends work that nobody waits for any longer.
///
/// # Errors
/// If the interruption that this thread watches has happened.
pub fn check_interrupted() -> Result<()> {
    let is_interrupted =
        WATCHED.with_borrow(|watched| watched.as_ref().is_some_and(|watched| watched.0.load(Ordering::Relaxed)));
    if is_interrupted {
        return Err(DataFusionError::Execution("interrupted: nobody waits for the result any longer".to_owned()));
    }
    Ok(())
}

/// The outcome of `work`, which is polled with `needed` bytes of a stack at least. Where the thread has fewer left, it is polled on a stack
/// of its own of `size` bytes.
pub async fn on_stack_of<T>(needed: usize, size: usize, work: impl Future<Output = T>) -> T {
    let mut work = Box::pin(work);
    poll_fn(move |context| stacker::maybe_grow(needed, size, || work.as_mut().poll(context))).await
}

thread_local! {
    /// Whether this thread is within a guard.
    static GUARDED: Cell<bool> = const { Cell::new(false) };
    /// Where the last panic within a guard was.
    static PLACE: RefCell<Option<String>> = const { RefCell::new(None) };
    /// What this thread watches.
    static WATCHED: RefCell<Option<Interruption>> = const { RefCell::new(None) };
}

fn silence_guarded_panics() {
    static HOOK: Once = Once::new();
    // The hook of a thread that panics cannot be changed; the guard is then one of a destructor.
    if !HOOK.is_completed() && !std::thread::panicking() {
        HOOK.call_once(|| {
            let next = take_hook();
            set_hook(Box::new(move |panic| {
                // While a thread ends its variables may be gone.
                if GUARDED.try_with(Cell::get).unwrap_or(false) {
                    let place = panic.location().map(ToString::to_string);
                    let _ = PLACE.try_with(|last| last.replace(place));
                } else {
                    next(panic);
                }
            }));
        });
    }
}

fn panic_message(panic: Box<dyn Any + Send>) -> Cow<'static, str> {
    let panic = match panic.downcast::<&'static str>() {
        Ok(message) => return Cow::Borrowed(*message),
        Err(panic) => panic,
    };
    match panic.downcast::<String>() {
        Ok(message) => Cow::Owned(*message),
        Err(panic) => {
            // It may panic when it is dropped, which would unwind after all.
            std::mem::forget(panic);
            Cow::Borrowed("(no message)")
        }
    }
}
