//! The query planner of a registered session, as the struct that a host imports.

use async_ffi::FutureExt;
use datafusion::common::{DataFusionError, Result};
use datafusion_ffi::execution::FFI_TaskContextProvider;
use datafusion_ffi::ffi_option::FFI_Result;
use datafusion_ffi::proto::logical_extension_codec::FFI_LogicalExtensionCodec;
use datafusion_ffi::proto::physical_extension_codec::FFI_PhysicalExtensionCodec;
use stabby::vec::Vec as SVec;
use std::ffi::c_void;
use std::sync::Arc;

use crate::abi::{Planned, QueryPlanner, SessionRef};
use crate::crossing::forget;
use crate::registered::Registered;
use crate::statement::Statement;

/// A planner in front of that which a session has.
///
/// # Errors
/// If the session is gone.
pub fn planner(
    logical_codec: FFI_LogicalExtensionCodec,
    physical_codec: FFI_PhysicalExtensionCodec,
    fallback: QueryPlanner,
    session: FFI_TaskContextProvider,
) -> Result<QueryPlanner> {
    let registered = Registered::new(fallback, (&logical_codec).into(), session)?;
    Ok(handle(registered, logical_codec, physical_codec))
}

/// A handle with a share of a registered session.
fn handle(
    registered: Arc<Registered>,
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

fn registered(planner: &QueryPlanner) -> Arc<Registered> {
    let registered = planner.private_data.cast_const().cast::<Registered>();
    // SAFETY: the pointer is that of an `Arc`, of which the handle has a share.
    unsafe {
        Arc::increment_strong_count(registered);
        Arc::from_raw(registered)
    }
}

unsafe extern "C" fn clone(planner: &QueryPlanner) -> QueryPlanner {
    handle(registered(planner), planner.logical_codec.clone(), planner.physical_codec.clone())
}

unsafe extern "C" fn release(planner: &mut QueryPlanner) {
    // SAFETY: the handle has a share, and gives it back once.
    drop(unsafe { Arc::from_raw(planner.private_data.cast_const().cast::<Registered>()) });
}

unsafe extern "C" fn create_physical_plan(planner: &QueryPlanner, plan: SVec<u8>, session: SessionRef) -> Planned {
    let physical_codec = (&planner.physical_codec).into();
    let statement = Statement { registered: registered(planner), physical_codec, session };
    async move {
        let planned = statement.planned(&plan).await;
        forget(&plan);
        match planned {
            Ok(bytes) => FFI_Result::Ok(bytes),
            Err(error) => FFI_Result::Err(message(&error).as_str().into()),
        }
    }
    .into_ffi()
}

/// What the host is told. It says itself that the error came from another library.
fn message(error: &DataFusionError) -> String {
    error.strip_backtrace()
}
