//! Decides whether a foreign function handle is a DataFusion built-in.
//!
//! A host hands out its functions as handles. Built-ins are encoded by name and decoded as those of this library, so the optimizer and the
//! derivative rules know them. DataFusion has one object for each built-in in all sessions of a library. So a function is a built-in if its
//! handle has the fingerprint of a handle in a new session of the host. All other functions are encoded as handles and stay what they are,
//! whatever their names and types. Conversely, a derivative calls the built-in even where the session has another function of the same
//! name: then the built-in is encoded as a handle.
//!
//! ```sql
//! SELECT grad(sin(x), x) FROM t   -- is cos(x), whatever the session calls cos
//! ```

use datafusion::common::config::ConfigOptions;
use datafusion::logical_expr::{AggregateUDF, ScalarUDF, WindowUDF};
use datafusion_ffi::execution::FFI_TaskContext;
use datafusion_ffi::udaf::{FFI_AggregateUDF, ForeignAggregateUDF};
use datafusion_ffi::udf::{FFI_ScalarUDF, ForeignScalarUDF};
use datafusion_ffi::udwf::{FFI_WindowUDF, ForeignWindowUDF};
use std::any::Any;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use crate::runtime::builtin_state;

/// The library of a function, and the addresses of its code and its state, which all handles of the function share.
type FunctionFingerprint = (usize, [usize; 2]);

/// The memory layout of a function of any kind: an `Arc` of an `Arc<dyn ...>`.
#[repr(C)]
struct UdfLayout {
    _counts: [usize; 2],
    implementation: [usize; 2],
}

const _: () = assert!(size_of::<ScalarUDF>() == size_of::<[usize; 2]>());
const _: () = assert!(size_of::<AggregateUDF>() == size_of::<[usize; 2]>());
const _: () = assert!(size_of::<WindowUDF>() == size_of::<[usize; 2]>());

/// The handles of DataFusion's built-ins by fingerprint. They are kept alive so that no other object gets their addresses.
static BUILTIN_HANDLES: LazyLock<Mutex<HashMap<FunctionFingerprint, Box<dyn Any + Send + Sync>>>> =
    LazyLock::new(Mutex::default);

fn lock_builtins() -> MutexGuard<'static, HashMap<FunctionFingerprint, Box<dyn Any + Send + Sync>>> {
    BUILTIN_HANDLES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A handle of a function.
trait Handle: Any + Send + Sync {
    /// Returns its fingerprint.
    fn fingerprint(&self) -> FunctionFingerprint;
}

macro_rules! handle {
    ($handle:ty) => {
        impl Handle for $handle {
            fn fingerprint(&self) -> FunctionFingerprint {
                // SAFETY: another library of a process has the same major version of DataFusion, which the registration checks. The private
                // data of its handles is a box of an `Arc` of a function, whose only field is the `Arc` of its implementation. What is
                // read there is compared and not followed.
                let function = unsafe { &**self.private_data.cast_const().cast::<*const UdfLayout>() };
                ((self.library_marker_id)(), function.implementation)
            }
        }
    };
}

handle!(FFI_ScalarUDF);
handle!(FFI_AggregateUDF);
handle!(FFI_WindowUDF);

/// Records the functions of a new session of a host as DataFusion's built-ins.
pub fn record_builtins(new_session: &FFI_TaskContext) {
    fn record<H: Handle, N>(handles: impl IntoIterator<Item = (N, H)>) {
        lock_builtins().extend(handles.into_iter().map(|(_, handle)| (handle.fingerprint(), Box::new(handle) as _)));
    }
    // SAFETY: the functions belong to the owner of the handle.
    unsafe {
        record((new_session.scalar_functions)(new_session));
        record((new_session.aggregate_functions)(new_session));
        record((new_session.window_functions)(new_session));
    }
}

/// A function of one of three kinds, which differ only in their types here.
pub trait Function: Any + Clone {
    /// Returns the built-in of its name.
    fn builtin(&self) -> Option<&'static Arc<Self>>;
    /// Returns whether another function has the same implementation type.
    fn has_same_type(&self, other: &Self) -> bool;
    /// Returns the fingerprint, if it is a function of another library.
    fn fingerprint(&self) -> Option<FunctionFingerprint>;
    /// Returns the functions of a session that are no built-ins, by name.
    fn user_functions(session: &FFI_TaskContext) -> HashMap<String, Self>;
    /// Finds the function of its name in a target session, unless that is a built-in.
    fn find_user_function<'a>(&self, target: &'a mut TargetSession) -> Option<&'a Self>;

    /// Returns whether it is a built-in that each session creates again.
    fn is_rebuilt_per_session(&self) -> bool {
        false
    }
}

macro_rules! function {
    ($function:ty, $handle:ty, $foreign:ty, $map:ident { $($item:item)* }) => {
        impl Function for $function {
            fn builtin(&self) -> Option<&'static Arc<Self>> {
                builtin_state().$map().get(self.name())
            }

            fn has_same_type(&self, other: &Self) -> bool {
                let (this, other): (&dyn Any, &dyn Any) = (self.inner().as_ref(), other.inner().as_ref());
                this.type_id() == other.type_id()
            }

            fn fingerprint(&self) -> Option<FunctionFingerprint> {
                self.inner().is::<$foreign>().then(|| <$handle>::from(Arc::new(self.clone())).fingerprint())
            }

            fn user_functions(session: &FFI_TaskContext) -> HashMap<String, Self> {
                // SAFETY: the function belongs to the owner of the handle.
                let functions = unsafe { (session.$map)(session) };
                let known = lock_builtins();
                let others = functions.into_iter().filter(|(_, handle)| !known.contains_key(&handle.fingerprint()));
                others.map(|(name, handle)| (name.to_string(), Self::new_from_shared_impl((&handle).into()))).collect()
            }

            fn find_user_function<'a>(&self, target: &'a mut TargetSession) -> Option<&'a Self> {
                let TargetSession { session, $map, .. } = target;
                let others = $map.get_or_insert_with(|| session().map(|session| Self::user_functions(&session)).unwrap_or_default());
                others.get(self.name())
            }

            $($item)*
        }
    };
}

function!(ScalarUDF, FFI_ScalarUDF, ForeignScalarUDF, scalar_functions {
    /// Returns whether it depends on settings, as `now` does: DataFusion creates such functions again for each session and setting.
    fn is_rebuilt_per_session(&self) -> bool {
        let settings = ConfigOptions::default();
        let is_rebuilt_per_session = |function: &Self| function.inner().with_updated_config(&settings).is_some();
        self.builtin().is_some_and(|builtin| is_rebuilt_per_session(builtin)) && is_rebuilt_per_session(self)
    }
});
function!(AggregateUDF, FFI_AggregateUDF, ForeignAggregateUDF, aggregate_functions {});
function!(WindowUDF, FFI_WindowUDF, ForeignWindowUDF, window_functions {});

/// Returns the functions of one kind of a session that are no built-ins, including the operators of this project.
pub fn session_functions<F: Function>(session: &FFI_TaskContext) -> impl Iterator<Item = Arc<F>> {
    F::user_functions(session).into_values().filter(|function| !function.is_rebuilt_per_session()).map(Arc::new)
}

/// The session that is to decode a plan, and its functions that are no built-ins, listed on first use.
pub struct TargetSession {
    session: Box<dyn Fn() -> Option<FFI_TaskContext>>,
    scalar_functions: Option<HashMap<String, ScalarUDF>>,
    aggregate_functions: Option<HashMap<String, AggregateUDF>>,
    window_functions: Option<HashMap<String, WindowUDF>>,
}

thread_local! {
    /// The session for which this thread encodes a plan, if it is not the session that has made the plan.
    static TARGET: RefCell<Option<TargetSession>> = const { RefCell::new(None) };
}

/// Runs `write`, which encodes a plan for a session.
pub fn with_target<T>(session: impl Fn() -> Option<FFI_TaskContext> + 'static, write: impl FnOnce() -> T) -> T {
    struct Restore(Option<TargetSession>);
    impl Drop for Restore {
        fn drop(&mut self) {
            TARGET.set(self.0.take());
        }
    }
    let session = Box::new(session);
    let target = TargetSession { session, scalar_functions: None, aggregate_functions: None, window_functions: None };
    let _restore = Restore(TARGET.replace(Some(target)));
    write()
}

/// Returns whether all libraries of the process agree on a function by name: it is a built-in, and the target session has no other one of
/// its name.
pub fn is_builtin<F: Function>(function: &F) -> bool {
    let is_builtin = match function.fingerprint() {
        Some(fingerprint) => lock_builtins().contains_key(&fingerprint) || function.is_rebuilt_per_session(),
        None => function.builtin().is_some_and(|builtin| builtin.has_same_type(function)),
    };
    is_builtin
        && TARGET.with_borrow_mut(|target| {
            let other = target.as_mut().and_then(|target| function.find_user_function(target));
            other.is_none_or(|other| other.is_rebuilt_per_session())
        })
}
