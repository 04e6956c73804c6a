//! Two structs of `datafusion-ffi` as they lie in memory.
//!
//! `FFI_QueryPlanner` and `FFI_SessionRef` keep their fields to themselves, and what they offer instead writes and reads whole plans by a
//! codec that cannot carry file formats. The order of the fields is the interface between libraries, which holds for a major version.

use async_ffi::FfiFuture;
use datafusion::common::{Result, plan_err};
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

/// The future of a physical plan, encoded as bytes.
pub type PlanFuture = FfiFuture<FFI_Result<SVec<u8>>>;

/// A function pointer that is never called.
type UnusedFn = unsafe extern "C" fn();

/// `FFI_QueryPlanner`.
#[repr(C)]
pub struct QueryPlanner {
    /// Makes a physical plan of a logical one, both encoded as bytes.
    pub create_physical_plan: unsafe extern "C" fn(&Self, SVec<u8>, SessionRef) -> PlanFuture,
    /// Encodes and decodes logical plans in the host.
    pub logical_codec: FFI_LogicalExtensionCodec,
    /// Encodes and decodes physical plans in the host.
    pub physical_codec: FFI_PhysicalExtensionCodec,
    /// Creates another handle.
    pub clone: unsafe extern "C" fn(&Self) -> Self,
    /// Releases the handle.
    pub release: unsafe extern "C" fn(&mut Self),
    /// Returns the major version of DataFusion.
    pub version: unsafe extern "C" fn() -> u64,
    /// The private data of the planner's owner.
    pub private_data: *mut c_void,
    /// Identifies the library of the owner within the process.
    pub library_marker_id: extern "C" fn() -> usize,
}

const _: () = assert!(size_of::<QueryPlanner>() == size_of::<FFI_QueryPlanner>());
const _: () = assert!(align_of::<QueryPlanner>() == align_of::<FFI_QueryPlanner>());
const _: () = assert!(offset_of!(QueryPlanner, version) == offset_of!(FFI_QueryPlanner, version));

/// Refuses a planner whose struct does not lie in memory as [`QueryPlanner`], as another major version of DataFusion may have it.
///
/// Nothing is called. Where a function is expected there has to be an address within a library, and where the data of the owner is, there
/// must be none. Systems other than Unix cannot be asked which addresses these are.
///
/// # Errors
/// If it lies otherwise.
///
/// # Safety
/// `planner` points to as many bytes as a [`QueryPlanner`] has, which may be read.
pub unsafe fn check_planner_layout(planner: *const c_void) -> Result<()> {
    const FUNCTIONS: [(&str, usize); 5] = [
        ("create_physical_plan", offset_of!(QueryPlanner, create_physical_plan)),
        ("clone", offset_of!(QueryPlanner, clone)),
        ("release", offset_of!(QueryPlanner, release)),
        ("version", offset_of!(QueryPlanner, version)),
        ("library_marker_id", offset_of!(QueryPlanner, library_marker_id)),
    ];
    const DATA: (&str, usize) = ("private_data", offset_of!(QueryPlanner, private_data));
    for (name, offset) in FUNCTIONS.into_iter().chain([DATA]) {
        // SAFETY: the caller guarantees that the bytes may be read.
        let address = unsafe { planner.byte_add(offset).cast::<*const c_void>().read_unaligned() };
        if is_in_library(address).is_some_and(|is_in_library| is_in_library != (name != DATA.0)) {
            return plan_err!(
                "the query planner of this session is not laid out as that of datafusion {}: {name} is not where it is expected. Install \
                 a datafusion of this version",
                datafusion::DATAFUSION_VERSION
            );
        }
    }
    Ok(())
}

/// Returns whether an address belongs to a library or program that is loaded, if the system can be asked.
#[cfg(unix)]
fn is_in_library(address: *const c_void) -> Option<bool> {
    let mut found = std::mem::MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: `dladdr` takes any address, and writes to a struct that is there.
    Some(unsafe { libc::dladdr(address, found.as_mut_ptr()) } != 0)
}

/// Returns whether an address belongs to a library or program that is loaded, if the system can be asked.
#[cfg(not(unix))]
fn is_in_library(_address: *const c_void) -> Option<bool> {
    None
}

// SAFETY: all threads of a session share its planner, as they share `FFI_QueryPlanner`.
unsafe impl Send for QueryPlanner {}
// SAFETY: as above.
unsafe impl Sync for QueryPlanner {}

impl Clone for QueryPlanner {
    fn clone(&self) -> Self {
        // SAFETY: the function belongs to the owner of the handle.
        unsafe { (self.clone)(self) }
    }
}

impl Drop for QueryPlanner {
    fn drop(&mut self) {
        // SAFETY: the function belongs to the owner of the handle, and is called once.
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

// SAFETY: threads share the session behind it, as `FFI_SessionRef` says.
unsafe impl Send for SessionRef {}
// SAFETY: as above.
unsafe impl Sync for SessionRef {}

impl Clone for SessionRef {
    fn clone(&self) -> Self {
        // SAFETY: the function belongs to the owner of the handle.
        unsafe { (self.clone)(self) }
    }
}

impl Drop for SessionRef {
    fn drop(&mut self) {
        // SAFETY: the function belongs to the owner of the handle, and is called once.
        unsafe { (self.release)(self) }
    }
}

impl SessionRef {
    /// Returns the configuration of the session.
    pub fn config(&self) -> FFI_SessionConfig {
        // SAFETY: the function belongs to the owner of the handle.
        unsafe { (self.config)(self) }
    }

    /// Returns the context in which the session executes plans, with its memory pool, files and object stores.
    pub fn task_context(&self) -> FFI_TaskContext {
        // SAFETY: the function belongs to the owner of the handle.
        unsafe { (self.task_ctx)(self) }
    }
}

/// The layout of `FFI_ConfigOptions`.
#[repr(C)]
struct ConfigOptionsLayout {
    values: SVec<(SString, SString)>,
    extensions: FFI_ExtensionOptions,
}

const _: () = assert!(size_of::<ConfigOptionsLayout>() == size_of::<FFI_ConfigOptions>());

/// Returns the names and values of all settings of a session, including those of extensions.
pub fn config_entries(config: &FFI_SessionConfig) -> Vec<(String, String)> {
    // SAFETY: `FFI_ConfigOptions` is `repr(C)` and has these two fields.
    let settings = unsafe { &*std::ptr::from_ref(&config.config_options).cast::<ConfigOptionsLayout>() };
    // SAFETY: the function belongs to the owner of the handle.
    let mut extensions = unsafe { (settings.extensions.entries)(&settings.extensions) }.into_iter().collect::<Vec<_>>();
    extensions.sort_unstable();
    let text = |(name, value): &(SString, SString)| (name.to_string(), value.to_string());
    settings.values.iter().chain(&extensions).map(text).collect()
}

/// The private data behind the handle of a table: the words of an `Arc<dyn TableProvider>` and of a runtime. Two handles of one table have
/// the same.
pub type HandleFingerprint = [usize; 4];

/// Returns the fingerprint of a table's handle.
///
/// # Safety
/// The handle is one of this version of `datafusion-ffi`, whose private data is a box of an `Arc<dyn TableProvider>` and an
/// `Option<tokio::runtime::Handle>`, of two words each. The words are compared and never followed.
pub unsafe fn table_fingerprint(table: &FFI_TableProvider) -> HandleFingerprint {
    // The pointer precedes the marker.
    let offset = offset_of!(FFI_TableProvider, library_marker_id) - size_of::<*mut c_void>();
    // SAFETY: `FFI_TableProvider` is `repr(C)`, and its field `private_data` lies there.
    let data = unsafe { std::ptr::from_ref(table).cast::<u8>().add(offset).cast::<*const HandleFingerprint>().read() };
    // SAFETY: the caller guarantees that four words are there.
    unsafe { data.read() }
}
