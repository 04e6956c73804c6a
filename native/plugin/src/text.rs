//! Derivatives as SQL text.

use arrow::datatypes::{Field, Schema};
use arrow::ffi::FFI_ArrowSchema;
use datafusion_common::{Result, plan_datafusion_err};
use std::ffi::{CString, c_char, c_void};
use std::ptr::null_mut;
use std::sync::Arc;
use xql_guard::Interruption;
use xql_text::{Catalog, Edit};

use crate::boundary::{free_handle, into_handle, str_from_ptr};
use crate::rule::{collect_rules, xql_ffi_rule};

/// The tables, views and functions that statements refer to.
#[allow(non_camel_case_types)]
pub struct xql_ffi_catalog(Catalog);

/// Creates a catalog without tables.
#[unsafe(no_mangle)]
pub extern "C" fn xql_ffi_catalog_new() -> *mut xql_ffi_catalog {
    // SAFETY: there is no error to be written.
    unsafe { into_handle(null_mut(), || Ok(xql_ffi_catalog(Catalog::default()))) }
}

/// Frees a catalog.
///
/// # Safety
/// `catalog` is null or comes from `xql_ffi_catalog_new` and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xql_ffi_catalog_free(catalog: *mut xql_ffi_catalog) {
    // SAFETY: as for this function.
    unsafe { free_handle(catalog) }
}

/// Adds a table by its name in SQL and its columns, an `ArrowSchema` of which the contents are taken over.
///
/// # Safety
/// `catalog` is null or comes from `xql_ffi_catalog_new`; `name` is null or a string that ends in NUL; `schema` is null or an
/// `ArrowSchema`; `error` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xql_ffi_catalog_table(
    catalog: *mut xql_ffi_catalog,
    name: *const c_char,
    schema: *mut c_void,
    error: *mut *mut c_char,
) -> bool {
    let add = |catalog: &mut Catalog| {
        // SAFETY: as for this function.
        let (name, schema) = unsafe { (str_from_ptr(name)?, take_schema(schema)?) };
        catalog.add_table(name, Arc::new(Schema::try_from(&schema)?));
        Ok(())
    };
    // SAFETY: as for this function.
    unsafe { update_catalog(catalog, error, add) }
}

/// Adds a view by its name in SQL and its query.
///
/// # Safety
/// `catalog` is null or comes from `xql_ffi_catalog_new`; `name` and `sql` are null or strings that end in NUL; `error` is null
/// or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xql_ffi_catalog_view(
    catalog: *mut xql_ffi_catalog,
    name: *const c_char,
    sql: *const c_char,
    error: *mut *mut c_char,
) -> bool {
    let add = |catalog: &mut Catalog| {
        // SAFETY: as for this function.
        let (name, sql) = unsafe { (str_from_ptr(name)?, str_from_ptr(sql)?) };
        catalog.add_view(name, sql);
        Ok(())
    };
    // SAFETY: as for this function.
    unsafe { update_catalog(catalog, error, add) }
}

/// Adds a table that a view holds and that is not known to be the one of its name, by the names of both in SQL and its columns, an
/// `ArrowSchema` of which the contents are taken over. Tables that are known by the same are one; an empty string is for a table that
/// may be the one of its name.
///
/// # Safety
/// `catalog` is null or comes from `xql_ffi_catalog_new`; `view`, `table` and `known_by` are null or strings that end in NUL;
/// `schema` is null or an `ArrowSchema`; `error` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xql_ffi_catalog_held(
    catalog: *mut xql_ffi_catalog,
    view: *const c_char,
    table: *const c_char,
    known_by: *const c_char,
    schema: *mut c_void,
    error: *mut *mut c_char,
) -> bool {
    let add = |catalog: &mut Catalog| {
        // SAFETY: as for this function.
        let (view, table, known_by) = unsafe { (str_from_ptr(view)?, str_from_ptr(table)?, str_from_ptr(known_by)?) };
        // SAFETY: as for this function.
        let schema = unsafe { take_schema(schema)? };
        catalog.add_stale_table(view, table, known_by, Arc::new(Schema::try_from(&schema)?));
        Ok(())
    };
    // SAFETY: as for this function.
    unsafe { update_catalog(catalog, error, add) }
}

/// Adds a relation that no statement with derivatives may read, and the reason.
///
/// # Safety
/// `catalog` is null or comes from `xql_ffi_catalog_new`; `name` and `reason` are null or strings that end in NUL; `error` is
/// null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xql_ffi_catalog_opaque(
    catalog: *mut xql_ffi_catalog,
    name: *const c_char,
    reason: *const c_char,
    error: *mut *mut c_char,
) -> bool {
    let add = |catalog: &mut Catalog| {
        // SAFETY: as for this function.
        let (name, reason) = unsafe { (str_from_ptr(name)?, str_from_ptr(reason)?) };
        catalog.add_opaque(name, reason);
        Ok(())
    };
    // SAFETY: as for this function.
    unsafe { update_catalog(catalog, error, add) }
}

/// Adds the result of a call of a function, an `ArrowSchema` of a field of which the contents are taken over; null if there is no
/// such function.
///
/// # Safety
/// `catalog` is null or comes from `xql_ffi_catalog_new`; `call` is null or a string that ends in NUL; `field` is null or an
/// `ArrowSchema`; `error` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xql_ffi_catalog_function(
    catalog: *mut xql_ffi_catalog,
    call: *const c_char,
    field: *mut c_void,
    is_volatile: bool,
    error: *mut *mut c_char,
) -> bool {
    let add = |catalog: &mut Catalog| {
        // SAFETY: as for this function.
        let call = unsafe { str_from_ptr(call)? };
        let field = if field.is_null() {
            None
        } else {
            // SAFETY: as for this function.
            Some(Arc::new(Field::try_from(&unsafe { take_schema(field)? })?))
        };
        catalog.add_function(call, field, is_volatile);
        Ok(())
    };
    // SAFETY: as for this function.
    unsafe { update_catalog(catalog, error, add) }
}

/// Allows recursive terms to read the rows of the last iteration several times, and what is computed of them.
///
/// # Safety
/// `catalog` is null or comes from `xql_ffi_catalog_new`; `error` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xql_ffi_catalog_rereads(catalog: *mut xql_ffi_catalog, error: *mut *mut c_char) -> bool {
    let say = |catalog: &mut Catalog| {
        catalog.multi_read_recursion = true;
        Ok(())
    };
    // SAFETY: as for this function.
    unsafe { update_catalog(catalog, error, say) }
}

/// Adds the name of a special function that the session has.
///
/// # Safety
/// `catalog` is null or comes from `xql_ffi_catalog_new`; `name` is null or a string that ends in NUL; `error` is null or may be
/// written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xql_ffi_catalog_special(
    catalog: *mut xql_ffi_catalog,
    name: *const c_char,
    error: *mut *mut c_char,
) -> bool {
    let add = |catalog: &mut Catalog| {
        // SAFETY: as for this function.
        catalog.add_special(unsafe { str_from_ptr(name)? });
        Ok(())
    };
    // SAFETY: as for this function.
    unsafe { update_catalog(catalog, error, add) }
}

/// Interrupts work in a thread whose result nobody awaits any longer.
#[allow(non_camel_case_types)]
pub struct xql_ffi_interruption(Interruption);

/// Creates an interruption that has not happened.
#[unsafe(no_mangle)]
pub extern "C" fn xql_ffi_interruption_new() -> *mut xql_ffi_interruption {
    // SAFETY: there is no error to be written.
    unsafe { into_handle(null_mut(), || Ok(xql_ffi_interruption(Interruption::default()))) }
}

/// Makes work in this thread, from here on, end when it is interrupted.
///
/// # Safety
/// `interruption` is null or comes from `xql_ffi_interruption_new`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xql_ffi_interruption_watch(interruption: *const xql_ffi_interruption) {
    // SAFETY: as for this function.
    if let Some(interruption) = unsafe { interruption.as_ref() } {
        interruption.0.watch();
    }
}

/// Interrupts the work that watches it.
///
/// # Safety
/// `interruption` is null or comes from `xql_ffi_interruption_new`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xql_ffi_interruption_interrupt(interruption: *const xql_ffi_interruption) {
    // SAFETY: as for this function.
    if let Some(interruption) = unsafe { interruption.as_ref() } {
        interruption.0.interrupt();
    }
}

/// Frees an interruption.
///
/// # Safety
/// `interruption` is null or comes from `xql_ffi_interruption_new` and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xql_ffi_interruption_free(interruption: *mut xql_ffi_interruption) {
    // SAFETY: as for this function.
    unsafe { free_handle(interruption) }
}

/// Rewrites the statements of a text without calls of the operators, for `xql_ffi_string_free`. Null and a reason in `error` if there is
/// no such text. A reason with characters 1 asks what the call of a function gives, which is to be added before the text
/// is asked for again: between the first two is the name of the function, and behind each of its arguments is another one.
///
/// # Safety
/// `catalog` is null or comes from `xql_ffi_catalog_new`; `sql` is null or a string that ends in NUL; `rules` points to `count`
/// rules; `error` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xql_ffi_expand(
    catalog: *const xql_ffi_catalog,
    sql: *const c_char,
    rules: *const *const xql_ffi_rule,
    count: usize,
    error: *mut *mut c_char,
) -> *mut c_char {
    let make = || {
        // SAFETY: as for this function.
        let (catalog, sql, rules) =
            unsafe { (catalog_ref(catalog)?, str_from_ptr(sql)?, collect_rules(rules, count)?) };
        xql_text::expand(sql, catalog, &rules)
    };
    // SAFETY: as for this function.
    unsafe { into_string(error, make) }
}

/// Returns the edits that `xql_ffi_expand` makes, for `xql_ffi_string_free`: for each part of the text a line with the bytes where it
/// starts and ends and the number of bytes that take its place, and then these.
///
/// # Safety
/// As for `xql_ffi_expand`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xql_ffi_edits(
    catalog: *const xql_ffi_catalog,
    sql: *const c_char,
    rules: *const *const xql_ffi_rule,
    count: usize,
    error: *mut *mut c_char,
) -> *mut c_char {
    let make = || {
        // SAFETY: as for this function.
        let (catalog, sql, rules) =
            unsafe { (catalog_ref(catalog)?, str_from_ptr(sql)?, collect_rules(rules, count)?) };
        let edits = xql_text::edits(sql, catalog, &rules)?;
        let lines = edits.iter().map(|Edit { range, text }| {
            let (start, end, length) = (range.start, range.end, text.len());
            format!("{start} {end} {length}\n{text}")
        });
        Ok(lines.collect())
    };
    // SAFETY: as for this function.
    unsafe { into_string(error, make) }
}

/// Writes the columns of the query that a statement is or contains to `schema`, an `ArrowSchema`. False and a reason in `error` if
/// the statement is wrong, as for `xql_ffi_expand`.
///
/// # Safety
/// As for `xql_ffi_expand`; `schema` is null or may be written an `ArrowSchema` to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xql_ffi_columns(
    catalog: *const xql_ffi_catalog,
    sql: *const c_char,
    rules: *const *const xql_ffi_rule,
    count: usize,
    schema: *mut c_void,
    error: *mut *mut c_char,
) -> bool {
    let make = || {
        // SAFETY: as for this function.
        let (catalog, sql, rules) =
            unsafe { (catalog_ref(catalog)?, str_from_ptr(sql)?, collect_rules(rules, count)?) };
        let made = FFI_ArrowSchema::try_from(&xql_text::columns(sql, catalog, &rules)?)?;
        if schema.is_null() {
            return Err(plan_datafusion_err!("a place for the schema is missing"));
        }
        // SAFETY: as for this function; what was there is not read.
        unsafe { schema.cast::<FFI_ArrowSchema>().write(made) };
        Ok(())
    };
    // SAFETY: as for this function.
    unsafe { succeeded(error, make) }
}

/// Differentiates an expression by a column, both over the columns of a table of the catalog, for `xql_ffi_string_free`. Null
/// and a reason in `error` if there is none, as for `xql_ffi_expand`.
///
/// # Safety
/// `catalog` is null or comes from `xql_ffi_catalog_new`; `expression`, `column` and `table` are null or strings that end in
/// NUL; `rules` points to `count` rules; `error` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xql_ffi_differentiate(
    catalog: *const xql_ffi_catalog,
    expression: *const c_char,
    column: *const c_char,
    table: *const c_char,
    rules: *const *const xql_ffi_rule,
    count: usize,
    error: *mut *mut c_char,
) -> *mut c_char {
    let make = || {
        // SAFETY: as for this function.
        let (catalog, rules) = unsafe { (catalog_ref(catalog)?, collect_rules(rules, count)?) };
        // SAFETY: as for this function.
        let (expression, column, table) =
            unsafe { (str_from_ptr(expression)?, str_from_ptr(column)?, str_from_ptr(table)?) };
        xql_text::differentiate(expression, column, catalog, table, &rules)
    };
    // SAFETY: as for this function.
    unsafe { into_string(error, make) }
}

/// # Safety
/// `catalog` is null or comes from `xql_ffi_catalog_new`.
unsafe fn catalog_ref<'a>(catalog: *const xql_ffi_catalog) -> Result<&'a Catalog> {
    // SAFETY: as for this function.
    let catalog = unsafe { catalog.as_ref() };
    catalog.map(|catalog| &catalog.0).ok_or_else(|| plan_datafusion_err!("a catalog is missing"))
}

/// # Safety
/// `catalog` is null or comes from `xql_ffi_catalog_new` and is not used meanwhile; `error` is null or may be written to.
unsafe fn update_catalog(
    catalog: *mut xql_ffi_catalog,
    error: *mut *mut c_char,
    change: impl FnOnce(&mut Catalog) -> Result<()>,
) -> bool {
    // SAFETY: as for this function.
    let catalog = unsafe { catalog.as_mut() };
    let make = || change(&mut catalog.ok_or_else(|| plan_datafusion_err!("a catalog is missing"))?.0);
    // SAFETY: as for this function.
    unsafe { succeeded(error, make) }
}

/// # Safety
/// `error` is null or may be written to.
unsafe fn succeeded(error: *mut *mut c_char, make: impl FnOnce() -> Result<()>) -> bool {
    // SAFETY: as for this function.
    let done = unsafe { into_handle(error, make) };
    let is_done = !done.is_null();
    // SAFETY: it was made just now.
    unsafe { free_handle(done) };
    is_done
}

/// # Safety
/// `schema` is null or an `ArrowSchema` whose contents nobody else has.
unsafe fn take_schema(schema: *mut c_void) -> Result<FFI_ArrowSchema> {
    if schema.is_null() {
        return Err(plan_datafusion_err!("a schema is missing"));
    }
    // SAFETY: the caller gives a struct of this layout, which is that of the C data interface.
    Ok(unsafe { FFI_ArrowSchema::from_raw(schema.cast()) })
}

/// # Safety
/// `error` is null or may be written to.
unsafe fn into_string(error: *mut *mut c_char, make: impl FnOnce() -> Result<String>) -> *mut c_char {
    let make = || CString::new(make()?).map_err(|_| plan_datafusion_err!("the text has a NUL character"));
    // SAFETY: as for this function.
    let made = unsafe { into_handle(error, make) };
    if made.is_null() {
        return null_mut();
    }
    // SAFETY: it was made just now as a box.
    (*unsafe { Box::from_raw(made) }).into_raw()
}
