//! The query planner of a registered session, as the struct that a host imports.
//!
//! Another library may install its planner in front of ours. Then another planner of this library is installed in front of that one, and it
//! is the one that differentiates. The planner behind recognizes by the thread that a statement has been delegated, and passes it on. If
//! the library in between has switched threads, the plan is optimized a second time.

use async_ffi::FutureExt;
use datafusion::common::{DataFusionError, Result};
use datafusion_ffi::execution::FFI_TaskContextProvider;
use datafusion_ffi::ffi_option::FFI_Result;
use datafusion_ffi::proto::logical_extension_codec::FFI_LogicalExtensionCodec;
use datafusion_ffi::proto::physical_extension_codec::FFI_PhysicalExtensionCodec;
use stabby::vec::Vec as SVec;
use std::ffi::c_void;
use std::sync::Arc;

use crate::abi::{PlanFuture, QueryPlanner, SessionRef};
use crate::codec::forget;
use crate::plan_handle::is_delegated;
use crate::registry::RegisteredSession;
use crate::statement::Statement;

/// Creates a planner in front of the one that a session has.
///
/// # Errors
/// If the session is gone.
pub fn new_planner(
    logical_codec: FFI_LogicalExtensionCodec,
    physical_codec: FFI_PhysicalExtensionCodec,
    fallback: QueryPlanner,
    session: FFI_TaskContextProvider,
) -> Result<QueryPlanner> {
    let registered = RegisteredSession::new(skip_own_planners(fallback), &logical_codec, session)?;
    Ok(new_handle(registered, logical_codec, physical_codec))
}

/// Returns the planner behind adjacent planners of this library, of which one is enough.
fn skip_own_planners(mut planner: QueryPlanner) -> QueryPlanner {
    while is_ours(&planner) {
        planner = session_of(&planner).fallback(&planner);
    }
    planner
}

/// Returns whether a planner is of this library and this build of it. No function of another library's planner is called.
fn is_ours(planner: &QueryPlanner) -> bool {
    std::ptr::fn_addr_eq(planner.release, release as unsafe extern "C" fn(&mut QueryPlanner))
        && (planner.library_marker_id)() == datafusion_ffi::get_library_marker_id()
}

/// Returns whether a planner is the one of this library that differentiates for the session with this identifier.
pub fn is_planner_of(planner: &QueryPlanner, session: &str) -> bool {
    is_ours(planner) && session_of(planner).has_id(session)
}

/// Creates a handle that shares a registered session.
fn new_handle(
    registered: Arc<RegisteredSession>,
    logical_codec: FFI_LogicalExtensionCodec,
    physical_codec: FFI_PhysicalExtensionCodec,
) -> QueryPlanner {
    QueryPlanner {
        create_physical_plan,
        logical_codec,
        physical_codec,
        clone,
        release,
        version: datafusion_ffi::version,
        private_data: Arc::into_raw(registered).cast_mut().cast::<c_void>(),
        library_marker_id: datafusion_ffi::get_library_marker_id,
    }
}

fn session_of(planner: &QueryPlanner) -> Arc<RegisteredSession> {
    let registered = planner.private_data.cast_const().cast::<RegisteredSession>();
    // SAFETY: the pointer comes from an `Arc`, of which the handle has a share.
    unsafe {
        Arc::increment_strong_count(registered);
        Arc::from_raw(registered)
    }
}

unsafe extern "C" fn clone(planner: &QueryPlanner) -> QueryPlanner {
    new_handle(session_of(planner), planner.logical_codec.clone(), planner.physical_codec.clone())
}

unsafe extern "C" fn release(planner: &mut QueryPlanner) {
    // SAFETY: the handle has a share, and releases it once.
    drop(unsafe { Arc::from_raw(planner.private_data.cast_const().cast::<RegisteredSession>()) });
}

unsafe extern "C" fn create_physical_plan(planner: &QueryPlanner, plan: SVec<u8>, session: SessionRef) -> PlanFuture {
    let registered = session_of(planner);
    let fallback = registered.fallback(planner);
    if is_delegated(registered.key()) {
        let delegated = async move {
            // SAFETY: the function belongs to the owner, and the session is borrowed as long as this future runs.
            unsafe { (fallback.create_physical_plan)(&fallback, plan, session) }.await
        };
        return delegated.into_ffi();
    }
    let logical_codec = (&planner.logical_codec).into();
    let physical_codec = (&planner.physical_codec).into();
    let statement = Statement { registered, fallback, logical_codec, physical_codec, session };
    let planned = async move {
        let planned = statement.plan(&plan).await;
        forget(&plan);
        match planned {
            Ok(bytes) => FFI_Result::Ok(bytes),
            Err(error) => FFI_Result::Err(error_message(&error).as_str().into()),
        }
    };
    planned.into_ffi()
}

/// Returns the message for the host, which adds that the error came from another library.
fn error_message(error: &DataFusionError) -> String {
    error.strip_backtrace()
}
