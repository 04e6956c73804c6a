//! Whose a function is.
//!
//! A host hands out its functions as handles. DataFusion's own are those of this library again, so that the optimizer and the rules of
//! derivatives know them: they cross by their names. DataFusion has one of each for all sessions of a library. So a function is
//! DataFusion's own if the host keeps behind its handle what it keeps there in a new session. All others cross as numbers and stay what
//! they are, whatever their names and types. The other way round, a derivative calls DataFusion's function where the session has
//! another one under its name: then that crosses as a number.
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

/// A library, and where it has the code and the state of a function, which all handles of the function share.
type FunctionFingerprint = (usize, [usize; 2]);

/// A function of any kind as it lies in the memory of its owner: an `Arc` of an `Arc<dyn ...>`.
#[repr(C)]
struct UdfLayout {
    _counts: [usize; 2],
    implementation: [usize; 2],
}

const _: () = assert!(size_of::<ScalarUDF>() == size_of::<[usize; 2]>());
const _: () = assert!(size_of::<AggregateUDF>() == size_of::<[usize; 2]>());
const _: () = assert!(size_of::<WindowUDF>() == size_of::<[usize; 2]>());

/// What hosts keep for DataFusion's own functions. The handles are held, so that nothing else comes to lie at these addresses.
static BUILTIN_HANDLES: LazyLock<Mutex<HashMap<FunctionFingerprint, Box<dyn Any + Send + Sync>>>> =
    LazyLock::new(Mutex::default);

fn lock_builtins() -> MutexGuard<'static, HashMap<FunctionFingerprint, Box<dyn Any + Send + Sync>>> {
    BUILTIN_HANDLES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The handle of a function.
trait Handle: Any + Send + Sync {
    /// What is known of its owner.
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

/// Notes which functions a new session of a host has: they are DataFusion's own.
pub fn record_builtins(new_session: &FFI_TaskContext) {
    fn record<H: Handle, N>(handles: impl IntoIterator<Item = (N, H)>) {
        lock_builtins().extend(handles.into_iter().map(|(_, handle)| (handle.fingerprint(), Box::new(handle) as _)));
    }
    // SAFETY: the functions are those of the owner.
    unsafe {
        record((new_session.scalar_functions)(new_session));
        record((new_session.aggregate_functions)(new_session));
        record((new_session.window_functions)(new_session));
    }
}

/// A function of one of the three kinds, which differ in their types alone here.
pub trait Function: Any + Clone {
    /// DataFusion's own function of its name.
    fn builtin(&self) -> Option<&'static Arc<Self>>;
    /// Whether another one is made by the same code of this library.
    fn has_same_type(&self, other: &Self) -> bool;
    /// What another library keeps for it, if it is one of another library.
    fn fingerprint(&self) -> Option<FunctionFingerprint>;
    /// Those that a session has besides DataFusion's, by their names.
    fn user_functions(session: &FFI_TaskContext) -> HashMap<String, Self>;
    /// The function that a reader has under this name, unless it is DataFusion's.
    fn find_user_function<'a>(&self, target: &'a mut TargetSession) -> Option<&'a Self>;

    /// Whether it is DataFusion's own, though a new session has another one.
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
                // SAFETY: the function is that of the owner.
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
    /// DataFusion makes the functions that depend on settings, such as `now`, anew for each session and whenever a setting changes.
    fn is_rebuilt_per_session(&self) -> bool {
        let settings = ConfigOptions::default();
        let is_rebuilt_per_session = |function: &Self| function.inner().with_updated_config(&settings).is_some();
        self.builtin().is_some_and(|builtin| is_rebuilt_per_session(builtin)) && is_rebuilt_per_session(self)
    }
});
function!(AggregateUDF, FFI_AggregateUDF, ForeignAggregateUDF, aggregate_functions {});
function!(WindowUDF, FFI_WindowUDF, ForeignWindowUDF, window_functions {});

/// The functions of one kind that a session has besides DataFusion's, the operators of this project among them.
pub fn session_functions<F: Function>(session: &FFI_TaskContext) -> impl Iterator<Item = Arc<F>> {
    F::user_functions(session).into_values().filter(|function| !function.is_rebuilt_per_session()).map(Arc::new)
}

/// The session that is to read what is written, and the functions that it has besides DataFusion's, as far as it was asked.
pub struct TargetSession {
    session: Box<dyn Fn() -> Option<FFI_TaskContext>>,
    scalar_functions: Option<HashMap<String, ScalarUDF>>,
    aggregate_functions: Option<HashMap<String, AggregateUDF>>,
    window_functions: Option<HashMap<String, WindowUDF>>,
}

thread_local! {
    /// For whom this thread writes a plan, if it is not the session that has made the plan.
    static TARGET: RefCell<Option<TargetSession>> = const { RefCell::new(None) };
}

/// Runs `write`, which writes a plan that a session is to read.
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

/// Whether the libraries of a process mean the same by the name of a function: it is DataFusion's own, and not one of this project.
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
