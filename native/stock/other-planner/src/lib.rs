//! A query planner of another library, for the tests: it notes the plans that it is given.

#![deny(missing_docs)]

use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::{DataFusionError, Result, plan_err};
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::context::QueryPlanner;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::{ExecutionPlan, displayable};
use datafusion::physical_planner::{DefaultPhysicalPlanner, PhysicalPlanner};
use datafusion_ffi::proto::logical_extension_codec::FFI_LogicalExtensionCodec;
use datafusion_ffi::proto::physical_extension_codec::FFI_PhysicalExtensionCodec;
use datafusion_ffi::query_planner::FFI_QueryPlanner;
use std::ffi::{CString, c_char};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// What the planners have been given and have made, in the order of time: the number of the planner, and a plan.
static NOTES: Mutex<Vec<(usize, String)>> = Mutex::new(vec![]);

/// How many planners there are.
static ALIVE: AtomicUsize = AtomicUsize::new(0);

/// What a planner does with a plan.
#[derive(Debug, Clone, Copy)]
enum Way {
    /// The planner that the session had before plans it.
    Delegates,
    /// As `Delegates`, in another thread.
    DelegatesElsewhere,
    /// It plans it itself, in this library.
    Plans,
    /// As `Plans`, with the physical rules of the session, which put nodes of the host into the plan.
    Mixes,
    /// It refuses.
    Refuses,
}

#[derive(Debug)]
struct Other {
    number: usize,
    way: Way,
    fallback: FFI_QueryPlanner,
}

impl Other {
    fn note(&self, plan: String) {
        NOTES.lock().unwrap_or_else(PoisonError::into_inner).push((self.number, plan));
    }

    async fn delegated(&self, plan: &LogicalPlan, session: &dyn Session) -> Result<Arc<dyn ExecutionPlan>> {
        self.fallback.create_physical_plan_with_session_runtime(plan, session, None).await
    }

    async fn planned(&self, plan: &LogicalPlan, session: &dyn Session) -> Result<Arc<dyn ExecutionPlan>> {
        match self.way {
            Way::Delegates => self.delegated(plan, session).await,
            Way::DelegatesElsewhere => std::thread::scope(|scope| {
                let planning = scope.spawn(|| futures::executor::block_on(self.delegated(plan, session)));
                planning.join().unwrap_or_else(|_| plan_err!("the thread of the other planner panicked"))
            }),
            Way::Plans => {
                let own =
                    SessionStateBuilder::new().with_config(session.config().clone()).with_default_features().build();
                DefaultPhysicalPlanner::default().create_physical_plan(plan, &own).await
            }
            Way::Mixes => DefaultPhysicalPlanner::default().create_physical_plan(plan, session).await,
            Way::Refuses => plan_err!("the other planner refuses"),
        }
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        ALIVE.fetch_sub(1, Ordering::Relaxed);
    }
}

#[async_trait]
impl QueryPlanner for Other {
    async fn create_physical_plan(&self, plan: &LogicalPlan, session: &dyn Session) -> Result<Arc<dyn ExecutionPlan>> {
        self.note(plan.display_indent().to_string());
        let planned = self.planned(plan, session).await;
        self.note(match &planned {
            Ok(planned) => format!("= {}", displayable(planned.as_ref()).indent(false)),
            Err(error) => format!("! {}", DataFusionError::strip_backtrace(error)),
        });
        planned
    }
}

/// A planner with a number, in front of `fallback`; null if it is of no known way: `d`, `e`, `p`, `m` or `r`.
///
/// # Safety
/// The others are null or point to the structs of `datafusion-ffi` 55 that their types say. They may be freed afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn other_planner_new(
    number: usize,
    way: u8,
    logical: *const FFI_LogicalExtensionCodec,
    physical: *const FFI_PhysicalExtensionCodec,
    fallback: *const FFI_QueryPlanner,
) -> *mut FFI_QueryPlanner {
    let way = match way {
        b'd' => Way::Delegates,
        b'e' => Way::DelegatesElsewhere,
        b'p' => Way::Plans,
        b'm' => Way::Mixes,
        b'r' => Way::Refuses,
        _ => return null_mut(),
    };
    // SAFETY: as for this function.
    let given = unsafe { (logical.as_ref(), physical.as_ref(), fallback.as_ref()) };
    let (Some(logical), Some(physical), Some(fallback)) = given else {
        return null_mut();
    };
    ALIVE.fetch_add(1, Ordering::Relaxed);
    let planner = Arc::new(Other { number, way, fallback: fallback.clone() });
    Box::into_raw(Box::new(FFI_QueryPlanner::new_with_ffi_codecs(planner, logical.clone(), physical.clone())))
}

/// Frees a planner. The handles that sessions have made of it stay valid.
///
/// # Safety
/// `planner` is null or comes from `other_planner_new` and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn other_planner_free(planner: *mut FFI_QueryPlanner) {
    if !planner.is_null() {
        // SAFETY: it was made as a box and is freed once.
        drop(unsafe { Box::from_raw(planner) });
    }
}

/// The next note of the planner with this number, for `other_planner_note_free`; null if there is none. It begins with `= ` if it is the
/// physical plan that was made, and with `! ` if it is an error.
#[unsafe(no_mangle)]
pub extern "C" fn other_planner_note(number: usize) -> *mut c_char {
    let mut notes = NOTES.lock().unwrap_or_else(PoisonError::into_inner);
    let next = notes.iter().position(|(of, _)| *of == number).map(|at| notes.remove(at).1);
    next.and_then(|note| CString::new(note).ok()).map_or(null_mut(), CString::into_raw)
}

/// Frees a note.
///
/// # Safety
/// `note` is null or comes from `other_planner_note` and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn other_planner_note_free(note: *mut c_char) {
    if !note.is_null() {
        // SAFETY: it was made by `CString::into_raw` in this library and is freed once.
        drop(unsafe { CString::from_raw(note) });
    }
}

/// How many planners of this library are not freed yet.
#[unsafe(no_mangle)]
pub extern "C" fn other_planners_alive() -> usize {
    ALIVE.load(Ordering::Relaxed)
}
