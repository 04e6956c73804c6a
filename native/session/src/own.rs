//! What this library has of its own: DataFusion's functions, threads, and a stack.

use datafusion::common::Result;
use datafusion::execution::TaskContextProvider;
use datafusion::execution::context::SessionState;
use datafusion::prelude::SessionContext;
use datafusion_ffi::execution::FFI_TaskContextProvider;
use std::future::poll_fn;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use tokio::runtime::{Handle, Runtime};
use xql_guard::guard;

/// A session of DataFusion's own functions with the operators and the rules.
static DEFAULTS: LazyLock<Arc<SessionState>> = LazyLock::new(|| {
    let session = SessionContext::new();
    xql_relations::register(&session);
    Arc::new(session.state())
});

/// DataFusion's own functions and the rules.
pub fn defaults() -> &'static SessionState {
    &DEFAULTS
}

/// The contexts of DataFusion's own functions, for what reads plans here.
pub fn task_contexts() -> FFI_TaskContextProvider {
    let defaults: Arc<dyn TaskContextProvider> = DEFAULTS.clone();
    FFI_TaskContextProvider::from(&defaults)
}

/// Bytes of a stack on which a plan is read, changed and written: all three go as deep as the plan.
pub const STACK: usize = 64 << 20;

/// Where what is computed in this library runs. A forked process has no threads of the one that it comes from, and makes its own.
pub fn runtime() -> Handle {
    static RUNTIME: Mutex<Option<(u32, Runtime)>> = Mutex::new(None);
    let process = std::process::id();
    let mut known = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((owner, runtime)) = known.as_ref()
        && *owner == process
    {
        return runtime.handle().clone();
    }
    let made = tokio::runtime::Builder::new_multi_thread()
        .thread_name("xql-ffi")
        .thread_stack_size(STACK)
        .enable_all()
        .build();
    let made = made.unwrap_or_else(|error| panic!("no threads for xql-ffi: {error}"));
    let handle = made.handle().clone();
    // To drop the other one would wait for its threads.
    std::mem::forget(known.replace((process, made)));
    handle
}

/// Runs `work` with enough of a stack; a panic is an error.
///
/// # Errors
/// That of `work`.
pub fn on_stack<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    stacker::maybe_grow(STACK / 2, STACK, || guard("planning a statement", work))
}

/// The outcome of `work`, which is polled with enough of a stack.
pub async fn on_stack_while_polled<T>(work: impl Future<Output = T>) -> T {
    let mut work = Box::pin(work);
    poll_fn(move |context| stacker::maybe_grow(STACK / 2, STACK, || work.as_mut().poll(context))).await
}
