//! The structs of the boundary, and the names of their Python exports.

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;
use std::sync::Arc;

use datafusion_common::{DataFusionError, Result};
use datafusion_expr::ScalarUDF;
use xql_guard::guard;

use crate::provider::{answer_request, encode_failure};
use crate::wire::ABI_VERSION;
use crate::wire::error::malformed;

/// Name of the capsule that holds an [`FFI_ScalarUDFSimplify`].
pub const CAPSULE_NAME: &CStr = c"datafusion_scalar_udf_simplify";

/// Method of a Python object that gives the capsule.
pub const METHOD_NAME: &str = "__datafusion_scalar_udf_simplify__";

/// Method of a Python object that gives the extra functions, a list of `datafusion._internal.ScalarUDF`, that the answers of
/// its `simplify` may call. An object may lack it.
pub const FUNCTIONS_METHOD_NAME: &str = "__datafusion_scalar_udf_simplify_functions__";

/// The `simplify` of a scalar function, for other libraries to call.
///
/// The first two fields keep their place in all versions. A consumer looks at the others only if it knows the version; it
/// does so with [`import`](Self::import).
#[repr(C)]
#[derive(Debug)]
#[allow(non_camel_case_types)]
pub struct FFI_ScalarUDFSimplify {
    /// [`ABI_VERSION`] of the library that made the struct.
    pub abi_version: u64,

    /// Major version of DataFusion in that library, whose `datafusion-proto` messages it speaks.
    pub datafusion_major: u64,

    /// Answers an encoded request of `len` bytes at `request` with an encoded answer.
    pub simplify: unsafe extern "C" fn(this: &Self, request: *const u8, len: usize) -> FFI_Bytes,

    /// Creates another handle of the same function.
    pub clone: unsafe extern "C" fn(this: &Self) -> Self,

    /// Releases the private data.
    pub release: unsafe extern "C" fn(this: &mut Self),

    /// For the library that made the struct only; null after a failed `clone` and after `release`.
    pub private_data: *mut c_void,
}

// SAFETY: the private data is an `Arc<ScalarUDF>`, which is `Send` and `Sync`; other makers of the struct promise the same.
unsafe impl Send for FFI_ScalarUDFSimplify {}
// SAFETY: as above.
unsafe impl Sync for FFI_ScalarUDFSimplify {}

/// The layout of [`FFI_ScalarUDFSimplify`] with functions that may be null.
#[repr(C)]
struct NullableLayout {
    versions: [u64; 2],
    functions: [Option<unsafe extern "C" fn()>; 3],
    private_data: *mut c_void,
}

const _: () = assert!(size_of::<NullableLayout>() == size_of::<FFI_ScalarUDFSimplify>());

impl FFI_ScalarUDFSimplify {
    /// Creates a handle from the struct of another library, after checking its version and that none of its functions is null.
    ///
    /// # Errors
    /// [`DataFusionError::Ffi`] for another version, and for what is no struct of this one.
    ///
    /// # Safety
    /// `foreign` points to an `FFI_ScalarUDFSimplify` of some version that stays valid during the call. Its functions do what is said of
    /// them here, and those of the handle that its `clone` makes. No check finds a pointer that dangles.
    pub unsafe fn import(foreign: NonNull<c_void>) -> Result<Self> {
        if !foreign.cast::<Self>().is_aligned() {
            return Err(DataFusionError::Ffi(
                "a function brings its simplify at an address that no struct has".to_owned(),
            ));
        }
        let versions = foreign.cast::<[u64; 2]>();
        // SAFETY: in all versions the struct starts with these two fields.
        let [abi_version, datafusion_major] = unsafe { versions.read() };
        let major = datafusion_ffi::version();
        if abi_version != ABI_VERSION {
            return Err(DataFusionError::Ffi(format!(
                "a function brings its simplify by version {abi_version} of the ABI; this library has version {ABI_VERSION}"
            )));
        }
        if datafusion_major != major {
            return Err(DataFusionError::Ffi(format!(
                "a function brings its simplify for DataFusion {datafusion_major}; this library has DataFusion {major}"
            )));
        }
        // SAFETY: this version has the layout of `Functions`, which may hold anything.
        if unsafe { foreign.cast::<NullableLayout>().as_ref() }.functions.contains(&None) {
            return Err(DataFusionError::Ffi("a function brings a simplify that lacks functions".to_owned()));
        }
        // SAFETY: this version has the layout of `Self`, and what must not be null is not.
        let foreign = unsafe { foreign.cast::<Self>().as_ref() };
        Ok(foreign.clone())
    }

    /// Calls `simplify` of the library that made the struct.
    pub(crate) fn call(&self, request: &[u8]) -> FFI_Bytes {
        // SAFETY: `simplify` comes with the struct; the request outlives the call.
        unsafe { (self.simplify)(self, request.as_ptr(), request.len()) }
    }
}

impl From<Arc<ScalarUDF>> for FFI_ScalarUDFSimplify {
    fn from(udf: Arc<ScalarUDF>) -> Self {
        Self {
            abi_version: ABI_VERSION,
            datafusion_major: datafusion_ffi::version(),
            simplify,
            clone,
            release,
            private_data: Box::into_raw(Box::new(udf)).cast(),
        }
    }
}

impl Clone for FFI_ScalarUDFSimplify {
    fn clone(&self) -> Self {
        // SAFETY: `clone` comes with the struct.
        unsafe { (self.clone)(self) }
    }
}

impl Drop for FFI_ScalarUDFSimplify {
    fn drop(&mut self) {
        // SAFETY: `release` comes with the struct and runs once.
        unsafe { (self.release)(self) }
    }
}

/// Returns the function of a struct made in this library.
///
/// # Safety
/// `this` was made in this library.
unsafe fn private_function(this: &FFI_ScalarUDFSimplify) -> Result<&Arc<ScalarUDF>> {
    let private_data = this.private_data.cast::<Arc<ScalarUDF>>();
    // SAFETY: the private data of this library is null or a boxed `Arc<ScalarUDF>` that lives as long as `this`.
    unsafe { private_data.as_ref() }
        .ok_or_else(|| DataFusionError::Ffi("simplify of a function that was released".to_owned()))
}

unsafe extern "C" fn simplify(this: &FFI_ScalarUDFSimplify, request: *const u8, len: usize) -> FFI_Bytes {
    let answer = guard("simplify", || {
        // SAFETY: `simplify` of this library is called with a struct of this library.
        let udf = unsafe { private_function(this) }?;
        // SAFETY: the caller passes `len` bytes that outlive the call.
        Ok(answer_request(udf, unsafe { bytes_at(request, len) }?))
    });
    answer.unwrap_or_else(encode_failure).into()
}

unsafe extern "C" fn clone(this: &FFI_ScalarUDFSimplify) -> FFI_ScalarUDFSimplify {
    // SAFETY: `clone` of this library is called with a struct of this library.
    let udf = unsafe { private_function(this) };
    FFI_ScalarUDFSimplify {
        private_data: match udf {
            Ok(udf) => Box::into_raw(Box::new(Arc::clone(udf))).cast(),
            Err(_) => std::ptr::null_mut(),
        },
        ..*this
    }
}

unsafe extern "C" fn release(this: &mut FFI_ScalarUDFSimplify) {
    let private_data = std::mem::replace(&mut this.private_data, std::ptr::null_mut());
    if !private_data.is_null() {
        let dropped = guard("release", || {
            // SAFETY: the box was made in this library and is no longer in `this`, so it is freed once.
            drop(unsafe { Box::<Arc<ScalarUDF>>::from_raw(private_data.cast()) });
            Ok(())
        });
        // Nobody can be notified that the function panicked when it was dropped.
        drop(dropped);
    }
}

/// Returns the `len` bytes at `data`.
///
/// # Safety
/// `data` is null or points to `len` bytes that live for `'a`.
unsafe fn bytes_at<'a>(data: *const u8, len: usize) -> Result<&'a [u8]> {
    if data.is_null() || isize::try_from(len).is_err() {
        return Err(malformed(format_args!("{len} bytes at {data:?}")));
    }
    // SAFETY: the caller gives `len` bytes.
    Ok(unsafe { std::slice::from_raw_parts(data, len) })
}

/// A buffer that is freed by the library that made it.
#[repr(C)]
#[derive(Debug)]
#[allow(non_camel_case_types)]
pub struct FFI_Bytes {
    data: *const u8,
    len: usize,
    /// `None` if there is nothing to free.
    release: Option<unsafe extern "C" fn(bytes: &mut Self)>,
    private_data: *mut c_void,
}

impl FFI_Bytes {
    /// Returns the bytes.
    ///
    /// # Errors
    /// [`DataFusionError::Ffi`] if there are none, or more than there can be.
    pub fn as_slice(&self) -> Result<&[u8]> {
        // SAFETY: the library that made the struct keeps `len` bytes at `data` alive until `release`.
        unsafe { bytes_at(self.data, self.len) }
    }
}

impl From<Vec<u8>> for FFI_Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        let (data, len) = (bytes.as_ptr(), bytes.len());
        let private_data = Box::into_raw(Box::new(bytes)).cast();
        Self { data, len, release: Some(release_bytes), private_data }
    }
}

impl Drop for FFI_Bytes {
    fn drop(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: `release` comes with the struct, from the library that made it, and runs once.
            unsafe { release(self) }
        }
    }
}

unsafe extern "C" fn release_bytes(bytes: &mut FFI_Bytes) {
    if !bytes.private_data.is_null() {
        // SAFETY: `private_data` is the box made in `from` and is cleared below, so it is freed once.
        drop(unsafe { Box::<Vec<u8>>::from_raw(bytes.private_data.cast()) });
        bytes.private_data = std::ptr::null_mut();
        bytes.data = std::ptr::null();
    }
}
