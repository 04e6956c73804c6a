//! Two structs of `datafusion-ffi` as they lie in memory.
//!
//! `FFI_QueryPlanner` and `FFI_SessionRef` keep their fields to themselves, and what they offer instead writes and reads whole plans by a
//! codec that cannot carry file formats. The order of the fields is the interface between libraries, which holds for a major version.

use async_ffi::FfiFuture;
use datafusion_ffi::config::FFI_ConfigOptions;
use datafusion_ffi::config::extension_options::FFI_ExtensionOptions;
use datafusion_ffi::execution::FFI_TaskContext;
use datafusion_ffi::ffi_option::FFI_Result;
use datafusion_ffi::proto::logical_extension_codec::FFI_LogicalExtensionCodec;
use datafusion_ffi::proto::physical_extension_codec::FFI_PhysicalExtensionCodec;
use datafusion_ffi::query_planner::FFI_QueryPlanner;
use datafusion_ffi::session::config::FFI_SessionConfig;
use datafusion_ffi::table_provider::FFI_TableProvider;
use stabby::string::String as SString;
use stabby::vec::Vec as SVec;
use std::ffi::c_void;
use std::mem::{align_of, offset_of, size_of};

/// What the future of a planner gives: a physical plan as bytes.
pub type PlanFuture = FfiFuture<FFI_Result<SVec<u8>>>;

/// A function pointer that is not called here.
type UnusedFn = unsafe extern "C" fn();

/// `FFI_QueryPlanner`.
#[repr(C)]
pub struct QueryPlanner {
    /// Makes a physical plan of a logical one, both as bytes.
    pub create_physical_plan: unsafe extern "C" fn(&Self, SVec<u8>, SessionRef) -> PlanFuture,
    /// Writes and reads logical plans in the host.
    pub logical_codec: FFI_LogicalExtensionCodec,
    /// Writes and reads physical plans in the host.
    pub physical_codec: FFI_PhysicalExtensionCodec,
    /// Makes another handle.
    pub clone: unsafe extern "C" fn(&Self) -> Self,
    /// Frees what is behind the handle.
    pub release: unsafe extern "C" fn(&mut Self),
    /// The major version of DataFusion.
    pub version: unsafe extern "C" fn() -> u64,
    /// What the owner of the planner keeps.
    pub private_data: *mut c_void,
    /// Tells the libraries of a process apart.
    pub library_marker_id: extern "C" fn() -> usize,
}

const _: () = assert!(size_of::<QueryPlanner>() == size_of::<FFI_QueryPlanner>());
const _: () = assert!(align_of::<QueryPlanner>() == align_of::<FFI_QueryPlanner>());
const _: () = assert!(offset_of!(QueryPlanner, version) == offset_of!(FFI_QueryPlanner, version));

// SAFETY: a planner is shared by all threads of its session, as `FFI_QueryPlanner` is.
unsafe impl Send for QueryPlanner {}
// SAFETY: as above.
unsafe impl Sync for QueryPlanner {}

impl Clone for QueryPlanner {
    fn clone(&self) -> Self {
        // SAFETY: the function is that of the owner.
        unsafe { (self.clone)(self) }
    }
}

impl Drop for QueryPlanner {
    fn drop(&mut self) {
        // SAFETY: the function is that of the owner, and is called once.
        unsafe { (self.release)(self) }
    }
}

/// `FFI_SessionRef`: a session that is borrowed for as long as a planner works for it. Before `config` is the function for its
/// identifier, and behind it are those for catalogs, planner, optimizer, plans, expressions, functions of three kinds and options of two.
/// Its fields are those that lie in memory.
#[repr(C)]
pub struct SessionRef {
    _identifier: UnusedFn,
    config: unsafe extern "C" fn(&Self) -> FFI_SessionConfig,
    _unused_fns: [UnusedFn; 10],
    task_ctx: unsafe extern "C" fn(&Self) -> FFI_TaskContext,
    _physical_optimizers: UnusedFn,
    _logical_codec: FFI_LogicalExtensionCodec,
    _physical_codec: FFI_PhysicalExtensionCodec,
    clone: unsafe extern "C" fn(&Self) -> Self,
    release: unsafe extern "C" fn(&mut Self),
    _version: UnusedFn,
    /// The private data and the marker of the library.
    _owner: [*mut c_void; 2],
}

// SAFETY: the session behind it is shared by threads, as `FFI_SessionRef` says.
unsafe impl Send for SessionRef {}
// SAFETY: as above.
unsafe impl Sync for SessionRef {}

impl Clone for SessionRef {
    fn clone(&self) -> Self {
        // SAFETY: the function is that of the owner.
        unsafe { (self.clone)(self) }
    }
}

impl Drop for SessionRef {
    fn drop(&mut self) {
        // SAFETY: the function is that of the owner, and is called once.
        unsafe { (self.release)(self) }
    }
}

impl SessionRef {
    /// Its settings.
    pub fn config(&self) -> FFI_SessionConfig {
        // SAFETY: the function is that of the owner.
        unsafe { (self.config)(self) }
    }

    /// The session as it executes plans: with its memory pool, its files and its object stores.
    pub fn task_context(&self) -> FFI_TaskContext {
        // SAFETY: the function is that of the owner.
        unsafe { (self.task_ctx)(self) }
    }
}

/// The settings of a session as they cross: `FFI_ConfigOptions`.
#[repr(C)]
struct ConfigOptionsLayout {
    values: SVec<(SString, SString)>,
    extensions: FFI_ExtensionOptions,
}

const _: () = assert!(size_of::<ConfigOptionsLayout>() == size_of::<FFI_ConfigOptions>());

/// The names and values of the settings of a session, and of those that other libraries have added.
pub fn config_entries(config: &FFI_SessionConfig) -> Vec<(String, String)> {
    // SAFETY: `FFI_ConfigOptions` is `repr(C)` and has these two fields.
    let settings = unsafe { &*std::ptr::from_ref(&config.config_options).cast::<ConfigOptionsLayout>() };
    // SAFETY: the function is that of the owner.
    let mut extensions = unsafe { (settings.extensions.entries)(&settings.extensions) }.into_iter().collect::<Vec<_>>();
    extensions.sort_unstable();
    let text = |(name, value): &(SString, SString)| (name.to_string(), value.to_string());
    settings.values.iter().chain(&extensions).map(text).collect()
}

/// What the owner of a table keeps behind a handle: the words of an `Arc<dyn TableProvider>` and of a runtime. Two handles of one table
/// have the same.
pub type HandleFingerprint = [usize; 4];

/// What is behind the handle of a table.
///
/// # Safety
/// The handle is one of this version of `datafusion-ffi`, whose private data is a box of an `Arc<dyn TableProvider>` and an
/// `Option<tokio::runtime::Handle>`, of two words each. The words are compared and never followed.
pub unsafe fn table_fingerprint(table: &FFI_TableProvider) -> HandleFingerprint {
    // The pointer stands before the marker.
    let offset = offset_of!(FFI_TableProvider, library_marker_id) - size_of::<*mut c_void>();
    // SAFETY: `FFI_TableProvider` is `repr(C)`, and its field `private_data` lies there.
    let data = unsafe { std::ptr::from_ref(table).cast::<u8>().add(offset).cast::<*const HandleFingerprint>().read() };
    // SAFETY: as the caller says, four words are there.
    unsafe { data.read() }
}
