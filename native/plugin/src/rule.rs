//! Rules of the user's own.

use datafusion_common::{Result, plan_datafusion_err};
use datafusion_expr::ScalarUDF;
use std::ffi::c_char;
use std::sync::Arc;
use xql_autodiff::{Rule, Rules};
use xql_simplify_ffi::ForeignFunction;

use crate::boundary::{free_handle, into_handle, slice_from_ptr, str_from_ptr};

/// The derivative of a function.
#[allow(non_camel_case_types)]
pub struct xql_ffi_rule(pub(crate) Rule);

/// Creates a rule from the signature of a function, its partial derivatives, the names of the host's functions that they
/// call, and whether the function is NULL exactly where an argument is. Returns null, with the reason in `error`, if it is invalid.
///
/// # Safety
/// `signature` is null or a string that ends in NUL; `partials` and `functions` point to as many of them as is said;
/// `error` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xql_ffi_rule_new(
    signature: *const c_char,
    partials: *const *const c_char,
    partial_count: usize,
    functions: *const *const c_char,
    function_count: usize,
    strict: bool,
    error: *mut *mut c_char,
) -> *mut xql_ffi_rule {
    let make = || {
        // SAFETY: as for this function.
        let (signature, partials, functions) = unsafe {
            (
                str_from_ptr(signature)?,
                strs_from_ptrs(partials, partial_count)?,
                strs_from_ptrs(functions, function_count)?,
            )
        };
        let functions = functions.into_iter().map(|name| Arc::new(ScalarUDF::from(ForeignFunction::from_name(name))));
        let rule = Rule::with_functions(signature, &partials, functions)?;
        Ok(xql_ffi_rule(if strict { rule.strict() } else { rule }))
    };
    // SAFETY: as for this function.
    unsafe { into_handle(error, make) }
}

/// Returns strings of the caller.
///
/// # Safety
/// `list` points to `count` strings that end in NUL and live for `'a`, or to null.
pub unsafe fn strs_from_ptrs<'a>(list: *const *const c_char, count: usize) -> Result<Vec<&'a str>> {
    // SAFETY: as for this function.
    unsafe { slice_from_ptr(list, count)?.iter().map(|item| str_from_ptr(*item)).collect() }
}

/// Frees a rule.
///
/// # Safety
/// `rule` is null or comes from `xql_ffi_rule_new` and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xql_ffi_rule_free(rule: *mut xql_ffi_rule) {
    // SAFETY: as for this function.
    unsafe { free_handle(rule) }
}

/// Collects rules.
///
/// # Safety
/// `rules` points to `count` rules, or to null.
pub unsafe fn collect_rules(rules: *const *const xql_ffi_rule, count: usize) -> Result<Rules> {
    // SAFETY: as for this function.
    let rules = unsafe { slice_from_ptr(rules, count)? }.iter().map(|rule| {
        // SAFETY: the caller gives rules, or null.
        let rule = unsafe { rule.as_ref() }.ok_or_else(|| plan_datafusion_err!("a rule is missing"))?;
        Ok(rule.0.clone())
    });
    Rules::new(rules.collect::<Result<Vec<_>>>()?)
}
