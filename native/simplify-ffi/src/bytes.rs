//! Bytes that one library owns and another reads.

use std::ffi::c_void;

/// A buffer that is freed by the library that made it.
#[repr(C)]
#[derive(Debug)]
#[allow(non_camel_case_types)]
pub struct FFI_Bytes {
    data: *const u8,
    len: usize,
    release: unsafe extern "C" fn(bytes: &mut Self),
    private_data: *mut c_void,
}

impl FFI_Bytes {
    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        if self.data.is_null() {
            return &[];
        }
        // SAFETY: the library that made the struct keeps `len` bytes at `data` alive until `release`.
        unsafe { std::slice::from_raw_parts(self.data, self.len) }
    }
}

impl From<Vec<u8>> for FFI_Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        let (data, len) = (bytes.as_ptr(), bytes.len());
        let private_data = Box::into_raw(Box::new(bytes)).cast();
        Self { data, len, release, private_data }
    }
}

impl Drop for FFI_Bytes {
    fn drop(&mut self) {
        // SAFETY: `release` comes with the struct, from the library that made it, and runs once.
        unsafe { (self.release)(self) }
    }
}

unsafe extern "C" fn release(bytes: &mut FFI_Bytes) {
    if !bytes.private_data.is_null() {
        // SAFETY: `private_data` is the box made in `from` and is cleared below, so it is freed once.
        drop(unsafe { Box::<Vec<u8>>::from_raw(bytes.private_data.cast()) });
        bytes.private_data = std::ptr::null_mut();
        bytes.data = std::ptr::null();
    }
}
