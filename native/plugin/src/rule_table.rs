//! The rule table through the Arrow C data interface.

use arrow::array::{Array, StructArray};
use arrow::ffi::{FFI_ArrowArray, FFI_ArrowSchema, to_ffi};
use datafusion_common::Result;
use std::ffi::c_void;
use xql_guard::guard;

/// Writes the rule table to an `ArrowSchema` and an `ArrowArray`, and returns whether it succeeded.
///
/// # Safety
/// `schema` and `array` are null, or point to structs that may be overwritten. What is written is the caller's, who
/// releases it as the C data interface has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xql_ffi_rule_table(schema: *mut c_void, array: *mut c_void) -> bool {
    if schema.is_null() || array.is_null() {
        return false;
    }
    let Ok((columns, types)) = guard("the rule table", export_table) else { return false };
    // SAFETY: the caller gives structs of these layouts, which are those of the C data interface.
    unsafe {
        array.cast::<FFI_ArrowArray>().write(columns);
        schema.cast::<FFI_ArrowSchema>().write(types);
    }
    true
}

fn export_table() -> Result<(FFI_ArrowArray, FFI_ArrowSchema)> {
    let table = xql_autodiff::rule_table()?;
    Ok(to_ffi(&StructArray::from(table).to_data())?)
}
