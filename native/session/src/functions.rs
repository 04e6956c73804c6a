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

use crate::own::defaults;

/// A library, and where it has the code and the state of a function, which all handles of the function share.
type Kept = (usize, [usize; 2]);

/// A function of any kind as it lies in the memory of its owner: an `Arc` of an `Arc<dyn ...>`.
#[repr(C)]
struct Shared {
    _counts: [usize; 2],
    implementation: [usize; 2],
}

const _: () = assert!(size_of::<ScalarUDF>() == size_of::<[usize; 2]>());
const _: () = assert!(size_of::<AggregateUDF>() == size_of::<[usize; 2]>());
const _: () = assert!(size_of::<WindowUDF>() == size_of::<[usize; 2]>());

/// What hosts keep for DataFusion's own functions. The handles are held, so that nothing else comes to lie at these addresses.
static OF_DATAFUSION: LazyLock<Mutex<HashMap<Kept, Box<dyn Any + Send + Sync>>>> = LazyLock::new(Mutex::default);

fn of_datafusion() -> MutexGuard<'static, HashMap<Kept, Box<dyn Any + Send + Sync>>> {
    OF_DATAFUSION.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The handle of a function.
trait Handle: Any + Send + Sync {
    /// What is known of its owner.
    fn kept(&self) -> Kept;
}

macro_rules! handle {
    ($handle:ty) => {
        impl Handle for $handle {
            fn kept(&self) -> Kept {
                // SAFETY: another library of a process has the same major version of DataFusion, which the registration checks. The private
                // data of its handles is a box of an `Arc` of a function, whose only field is the `Arc` of its implementation. What is
                // read there is compared and not followed.
                let function = unsafe { &**self.private_data.cast_const().cast::<*const Shared>() };
                ((self.library_marker_id)(), function.implementation)
            }
        }
    };
}

handle!(FFI_ScalarUDF);
handle!(FFI_AggregateUDF);
handle!(FFI_WindowUDF);

/// Notes which functions a new session of a host has: they are DataFusion's own.
pub fn note_functions(new_session: &FFI_TaskContext) {
    fn note<H: Handle, N>(handles: impl IntoIterator<Item = (N, H)>) {
        of_datafusion().extend(handles.into_iter().map(|(_, handle)| (handle.kept(), Box::new(handle) as _)));
    }
    // SAFETY: the functions are those of the owner.
    unsafe {
        note((new_session.scalar_functions)(new_session));
        note((new_session.aggregate_functions)(new_session));
        note((new_session.window_functions)(new_session));
    }
}

/// A function of one of the three kinds, which differ in their types alone here.
pub trait Function: Any + Clone {
    /// DataFusion's own function of its name.
    fn own(&self) -> Option<&'static Arc<Self>>;
    /// Whether another one is made by the same code of this library.
    fn is_made_as(&self, other: &Self) -> bool;
    /// What another library keeps for it, if it is one of another library.
    fn kept(&self) -> Option<Kept>;
    /// Those that a session has besides DataFusion's, by their names.
    fn others(session: &FFI_TaskContext) -> HashMap<String, Self>;
    /// The function that a reader has under this name, unless it is DataFusion's.
    fn other<'a>(&self, reader: &'a mut Reader) -> Option<&'a Self>;

    /// Whether it is DataFusion's own, though a new session has another one.
    fn is_made_anew(&self) -> bool {
        false
    }
}

macro_rules! function {
    ($function:ty, $handle:ty, $foreign:ty, $map:ident { $($own:item)* }) => {
        impl Function for $function {
            fn own(&self) -> Option<&'static Arc<Self>> {
                defaults().$map().get(self.name())
            }

            fn is_made_as(&self, other: &Self) -> bool {
                let (this, other): (&dyn Any, &dyn Any) = (self.inner().as_ref(), other.inner().as_ref());
                this.type_id() == other.type_id()
            }

            fn kept(&self) -> Option<Kept> {
                self.inner().is::<$foreign>().then(|| <$handle>::from(Arc::new(self.clone())).kept())
            }

            fn others(session: &FFI_TaskContext) -> HashMap<String, Self> {
                // SAFETY: the function is that of the owner.
                let functions = unsafe { (session.$map)(session) };
                let known = of_datafusion();
                let others = functions.into_iter().filter(|(_, handle)| !known.contains_key(&handle.kept()));
                others.map(|(name, handle)| (name.to_string(), Self::new_from_shared_impl((&handle).into()))).collect()
            }

            fn other<'a>(&self, reader: &'a mut Reader) -> Option<&'a Self> {
                let Reader { session, $map, .. } = reader;
                let others = $map.get_or_insert_with(|| session().map(|session| Self::others(&session)).unwrap_or_default());
                others.get(self.name())
            }

            $($own)*
        }
    };
}

function!(ScalarUDF, FFI_ScalarUDF, ForeignScalarUDF, scalar_functions {
    /// DataFusion makes the functions that depend on settings, such as `now`, anew for each session and whenever a setting changes.
    fn is_made_anew(&self) -> bool {
        let settings = ConfigOptions::default();
        let is_made_anew = |function: &Self| function.inner().with_updated_config(&settings).is_some();
        self.own().is_some_and(|own| is_made_anew(own)) && is_made_anew(self)
    }
});
function!(AggregateUDF, FFI_AggregateUDF, ForeignAggregateUDF, aggregate_functions {});
function!(WindowUDF, FFI_WindowUDF, ForeignWindowUDF, window_functions {});

/// The functions of one kind that a session has besides DataFusion's, the operators of this project among them.
pub fn of_session<F: Function>(session: &FFI_TaskContext) -> impl Iterator<Item = Arc<F>> {
    F::others(session).into_values().filter(|function| !function.is_made_anew()).map(Arc::new)
}

/// The session that is to read what is written, and the functions that it has besides DataFusion's, as far as it was asked.
pub struct Reader {
    session: Box<dyn Fn() -> Option<FFI_TaskContext>>,
    scalar_functions: Option<HashMap<String, ScalarUDF>>,
    aggregate_functions: Option<HashMap<String, AggregateUDF>>,
    window_functions: Option<HashMap<String, WindowUDF>>,
}

thread_local! {
    /// For whom this thread writes a plan, if it is not the session that has made the plan.
    static READER: RefCell<Option<Reader>> = const { RefCell::new(None) };
}

/// Runs `write`, which writes a plan that a session is to read.
pub fn written_for<T>(session: impl Fn() -> Option<FFI_TaskContext> + 'static, write: impl FnOnce() -> T) -> T {
    struct Before(Option<Reader>);
    impl Drop for Before {
        fn drop(&mut self) {
            READER.set(self.0.take());
        }
    }
    let session = Box::new(session);
    let reader = Reader { session, scalar_functions: None, aggregate_functions: None, window_functions: None };
    let _before = Before(READER.replace(Some(reader)));
    write()
}

/// Whether the libraries of a process mean the same by the name of a function: it is DataFusion's own, and not one of this project.
pub fn is_known_by_name<F: Function>(function: &F) -> bool {
    let is_datafusions = match function.kept() {
        Some(kept) => of_datafusion().contains_key(&kept) || function.is_made_anew(),
        None => function.own().is_some_and(|own| own.is_made_as(function)),
    };
    is_datafusions
        && READER.with_borrow_mut(|reader| {
            let other = reader.as_mut().and_then(|reader| function.other(reader));
            other.is_none_or(|other| other.is_made_anew())
        })
}
