//! What this library has of its own: DataFusion's functions, threads, and a stack.

use datafusion::common::Result;
use datafusion::execution::TaskContextProvider;
use datafusion::execution::context::SessionState;
use datafusion::prelude::SessionContext;
use datafusion_ffi::execution::FFI_TaskContextProvider;
use std::sync::{Arc, LazyLock};
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

/// Where what is computed in this library runs.
pub fn runtime() -> Handle {
    static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
        let made = tokio::runtime::Builder::new_multi_thread()
            .thread_name("xql-ffi")
            .thread_stack_size(STACK)
            .enable_all()
            .build();
        made.unwrap_or_else(|error| panic!("no threads for xql-ffi: {error}"))
    });
    RUNTIME.handle().clone()
}

/// Runs `work` with enough of a stack; a panic is an error.
///
/// # Errors
/// That of `work`.
pub fn on_stack<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    stacker::maybe_grow(STACK / 2, STACK, || guard("planning a statement", work))
}
