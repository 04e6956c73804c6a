//! Components of sessions of DataFusion 55: codecs, a planner and a physical rule.

use datafusion_common::{DataFusionError, Result, plan_datafusion_err};
use datafusion_expr::ScalarUDF;
use datafusion_ffi::execution::FFI_TaskContextProvider;
use datafusion_ffi::ffi_option::FFI_Result;
use datafusion_ffi::proto::logical_extension_codec::FFI_LogicalExtensionCodec;
use datafusion_ffi::proto::physical_extension_codec::FFI_PhysicalExtensionCodec;
use std::any::Any;
use std::borrow::Cow;
use std::ffi::{CString, c_char, c_void};
use std::ptr::{null, null_mut};
use std::sync::Arc;
use xql_autodiff::Rule;
use xql_session::{QueryPlanner, StatementText};
use xql_text::with_materialization;

use crate::boundary::{free_handle, into_handle, slice_from_ptr, str_from_ptr};
use crate::capsule::context;
use crate::rule::{strs_from_ptrs, xql_ffi_rule};

/// A component of a session, as the struct of `datafusion-ffi` that a host imports.
#[allow(non_camel_case_types)]
pub struct xql_ffi_component(Arc<dyn Any + Send + Sync>, *const c_void);

impl xql_ffi_component {
    fn new<T: Any + Send + Sync>(component: T) -> Self {
        let component = Arc::new(component);
        let address = Arc::as_ptr(&component).cast();
        Self(component, address)
    }
}

/// Creates a component for a session.
///
/// | `kind` | what it is | `session`, `logical`, `physical`, `fallback` |
/// |---|---|---|
/// | `logical codec`, `physical codec` | encodes and decodes tables, functions and plans as handles | none |
/// | `planner` | differentiates and optimizes statements | the session's `FFI_TaskContextProvider`, its codecs and the planner that it has |
/// | `rule` | captures the plans of that planner | none |
///
/// # Safety
/// `kind` is null or a string that ends in NUL; the others are null or point to the structs of `datafusion-ffi` that are said, of this
/// major version, and may be freed afterwards; `error` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xql_ffi_component_new(
    kind: *const c_char,
    session: *const c_void,
    logical: *const c_void,
    physical: *const c_void,
    fallback: *const c_void,
    error: *mut *mut c_char,
) -> *mut xql_ffi_component {
    let make = || {
        // SAFETY: as for this function.
        let kind = unsafe { str_from_ptr(kind)? };
        // SAFETY: as for this function.
        let session = || unsafe { clone_struct::<FFI_TaskContextProvider>(session) };
        Ok(match kind {
            "logical codec" => xql_ffi_component::new(xql_session::logical_codec()),
            "physical codec" => xql_ffi_component::new(xql_session::physical_codec()),
            "rule" => xql_ffi_component::new(xql_session::capture_rule()),
            "planner" => {
                // SAFETY: as for this function; `QueryPlanner` lies in memory as `FFI_QueryPlanner` does, which is checked.
                let (logical, physical, fallback) = unsafe {
                    if !fallback.is_null() {
                        xql_session::check_planner_layout(fallback)?;
                    }
                    let logical = clone_struct::<FFI_LogicalExtensionCodec>(logical)?;
                    let physical = clone_struct::<FFI_PhysicalExtensionCodec>(physical)?;
                    (logical, physical, clone_struct::<QueryPlanner>(fallback)?)
                };
                xql_ffi_component::new(xql_session::new_planner(logical, physical, fallback, session()?)?)
            }
            _ => return Err(plan_datafusion_err!("there is no component called {kind:?}")),
        })
    };
    // SAFETY: as for this function.
    unsafe { into_handle(error, make) }
}

/// Clones a struct of the caller.
///
/// # Safety
/// `given` is null or points to such a struct.
unsafe fn clone_struct<T: Clone>(given: *const c_void) -> Result<T> {
    // SAFETY: as for this function.
    let given = unsafe { given.cast::<T>().as_ref() };
    given.cloned().ok_or_else(|| DataFusionError::Ffi("a part of the session is missing".to_owned()))
}

/// Frees a component. Handles that hosts have made of it stay valid, and so do capsules that have a share of it.
///
/// # Safety
/// `component` is null or comes from `xql_ffi_component_new` and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xql_ffi_component_free(component: *mut xql_ffi_component) {
    // SAFETY: as for this function.
    unsafe { free_handle(component) }
}

/// Returns the struct of a component, which lives as long, or as a capsule that has a share of it.
///
/// # Safety
/// `component` is null or comes from `xql_ffi_component_new`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xql_ffi_component_struct(component: *const xql_ffi_component) -> *const c_void {
    // SAFETY: as for this function.
    unsafe { component.as_ref() }.map_or(null(), |component| component.1)
}

/// Returns a share of a component, as `xql_ffi_capsule_context` does of an operator.
///
/// # Safety
/// `component` is null or comes from `xql_ffi_component_new`; `get_context` is null or `PyCapsule_GetContext`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xql_ffi_component_context(
    component: *const xql_ffi_component,
    get_context: Option<unsafe extern "C" fn(capsule: *mut c_void) -> *mut c_void>,
) -> *const c_void {
    // SAFETY: as for this function.
    let (Some(component), Some(get_context)) = (unsafe { component.as_ref() }, get_context) else { return null() };
    context(Arc::clone(&component.0), get_context)
}

/// Returns whether a planner is the one of this library by which a session differentiates, and not another one in front of it.
///
/// # Safety
/// `planner` is null or points to an `FFI_QueryPlanner` of this major version; `session` is null or a string that ends in NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xql_ffi_is_planner_of(planner: *const c_void, session: *const c_char) -> bool {
    // SAFETY: as for this function; `QueryPlanner` lies in memory as `FFI_QueryPlanner` does.
    let (planner, session) = unsafe { (planner.cast::<QueryPlanner>().as_ref(), str_from_ptr(session)) };
    planner.zip(session.ok()).is_some_and(|(planner, session)| xql_session::is_planner_of(planner, session))
}

/// Records the functions of a new session as DataFusion's built-ins, and returns whether it succeeded; if not, the reason is in `error`.
///
/// # Safety
/// `new_session` is null or points to an `FFI_TaskContextProvider` of this major version; `error` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xql_ffi_note_functions(new_session: *const c_void, error: *mut *mut c_char) -> bool {
    let record = || {
        // SAFETY: as for this function.
        let provider = unsafe { clone_struct::<FFI_TaskContextProvider>(new_session)? };
        // SAFETY: the function is that of the owner.
        match unsafe { (provider.task_ctx)(&provider) } {
            FFI_Result::Ok(session) => {
                xql_session::record_builtins(&session);
                Ok(())
            }
            FFI_Result::Err(error) => Err(DataFusionError::Ffi(error.to_string())),
        }
    };
    // SAFETY: as for this function.
    unsafe { succeeded(error, record) }
}

/// Returns whether `work` succeeded; if not, the reason is in `error`.
///
/// # Safety
/// `error` is null or may be written to.
unsafe fn succeeded(error: *mut *mut c_char, work: impl FnOnce() -> Result<()>) -> bool {
    // SAFETY: as for this function; the handle is freed once.
    unsafe {
        let done = into_handle(error, work);
        let could = !done.is_null();
        free_handle(done);
        could
    }
}

/// A function of a host.
#[allow(non_camel_case_types)]
pub struct xql_ffi_function(Arc<ScalarUDF>);

/// Decodes the function of a call that a registered session has encoded as `size` bytes. Returns null, with the reason in `error`, if it
/// cannot be decoded.
///
/// # Safety
/// `session` is null or a string that ends in NUL; `call` points to `size` bytes; `error` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xql_ffi_function_new(
    session: *const c_char,
    call: *const u8,
    size: usize,
    error: *mut *mut c_char,
) -> *mut xql_ffi_function {
    let make = || {
        // SAFETY: as for this function.
        let (session, call) = unsafe { (str_from_ptr(session)?, slice_from_ptr(call, size)?) };
        Ok(xql_ffi_function(xql_session::decode_function(session, call)?))
    };
    // SAFETY: as for this function.
    unsafe { into_handle(error, make) }
}

/// Frees a function.
///
/// # Safety
/// `function` is null or comes from `xql_ffi_function_new` and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xql_ffi_function_free(function: *mut xql_ffi_function) {
    // SAFETY: as for this function.
    unsafe { free_handle(function) }
}

/// Creates a rule as `xql_ffi_rule_new` does, whose partial derivatives call functions of a host.
///
/// # Safety
/// As for `xql_ffi_rule_new`; `functions` points to `function_count` functions, which may be freed afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xql_ffi_rule_calling(
    signature: *const c_char,
    partials: *const *const c_char,
    partial_count: usize,
    functions: *const *const xql_ffi_function,
    function_count: usize,
    error: *mut *mut c_char,
) -> *mut xql_ffi_rule {
    let make = || {
        // SAFETY: as for this function.
        let (signature, partials, functions) = unsafe {
            (
                str_from_ptr(signature)?,
                strs_from_ptrs(partials, partial_count)?,
                slice_from_ptr(functions, function_count)?,
            )
        };
        // SAFETY: as for this function.
        let functions = functions.iter().filter_map(|function| unsafe { function.as_ref() });
        let functions = functions.map(|function| Arc::clone(&function.0));
        Ok(xql_ffi_rule(Rule::with_functions(signature, &partials, functions)?))
    };
    // SAFETY: as for this function.
    unsafe { into_handle(error, make) }
}

/// Returns the rule with the promise that its function is NULL exactly where an argument is.
///
/// # Safety
/// `rule` is null or comes from `xql_ffi_rule_new` or `xql_ffi_rule_calling`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xql_ffi_rule_strict(rule: *const xql_ffi_rule) -> *mut xql_ffi_rule {
    // SAFETY: as for this function; there is no error to be written.
    unsafe {
        into_handle(null_mut(), || {
            let rule = rule.as_ref().ok_or_else(|| DataFusionError::Ffi("a rule is missing".to_owned()))?;
            Ok(xql_ffi_rule(rule.0.clone().strict()))
        })
    }
}

/// Returns whether a session is registered.
///
/// # Safety
/// `session` is null or a string that ends in NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xql_ffi_is_registered(session: *const c_char) -> bool {
    // SAFETY: as for this function.
    unsafe { str_from_ptr(session) }.is_ok_and(xql_session::is_registered)
}

/// Returns whether a registered session computes CTEs once, even without a derivative.
///
/// # Safety
/// `session` is null or a string that ends in NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xql_ffi_shares_ctes(session: *const c_char) -> bool {
    // SAFETY: as for this function.
    unsafe { str_from_ptr(session) }.is_ok_and(xql_session::shares_ctes)
}

/// Rewrites the `AS MATERIALIZED` hints of a statement in a form that DataFusion parses. Returns null if there are none.
///
/// # Safety
/// `sql` is null or a string that ends in NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xql_ffi_with_materialization(sql: *const c_char) -> *mut c_char {
    // SAFETY: as for this function.
    match unsafe { str_from_ptr(sql) }.map(with_materialization) {
        Ok(Cow::Owned(marked)) => CString::new(marked).map_or(null_mut(), CString::into_raw),
        _ => null_mut(),
    }
}

/// Returns whether a planner of another library is behind that of a registered session.
///
/// # Safety
/// `session` is null or a string that ends in NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xql_ffi_has_other_planner(session: *const c_char) -> bool {
    // SAFETY: as for this function.
    unsafe { str_from_ptr(session) }.is_ok_and(xql_session::has_other_planner)
}

/// Sets an option of a registered session, and returns whether it succeeded; if not, the reason is in `error`.
///
/// # Safety
/// `session`, `key` and `value` are null or strings that end in NUL; `error` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xql_ffi_set_option(
    session: *const c_char,
    key: *const c_char,
    value: *const c_char,
    error: *mut *mut c_char,
) -> bool {
    let set = || {
        // SAFETY: as for this function.
        let (session, key, value) = unsafe { (str_from_ptr(session)?, str_from_ptr(key)?, str_from_ptr(value)?) };
        xql_session::set_option(session, key, value)
    };
    // SAFETY: as for this function.
    unsafe { succeeded(error, set) }
}

/// Records the names in a statement of a registered session, and returns whether it succeeded; if not, the reason is in `error`.
///
/// # Safety
/// `session` and `sql` are null or strings that end in NUL; `error` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xql_ffi_note_statement(
    session: *const c_char,
    sql: *const c_char,
    error: *mut *mut c_char,
) -> bool {
    let record = || {
        // SAFETY: as for this function.
        let (session, sql) = unsafe { (str_from_ptr(session)?, str_from_ptr(sql)?) };
        xql_session::record_statement(session, sql)
    };
    // SAFETY: as for this function.
    unsafe { succeeded(error, record) }
}

/// A plan as bytes.
#[allow(non_camel_case_types)]
pub struct xql_ffi_plan(Vec<u8>);

/// Differentiates and optimizes the plan of a statement of a registered session. The session can decode the result once. Returns null, with
/// the reason in `error`, if that fails.
///
/// # Safety
/// `session` is null or a string that ends in NUL; `plan` points to `size` bytes that the session wrote; `error` is null or may be
/// written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xql_ffi_plan_optimized(
    session: *const c_char,
    plan: *const u8,
    size: usize,
    error: *mut *mut c_char,
) -> *mut xql_ffi_plan {
    let make = || {
        // SAFETY: as for this function.
        let (session, plan) = unsafe { (str_from_ptr(session)?, slice_from_ptr(plan, size)?) };
        Ok(xql_ffi_plan(xql_session::optimize(session, plan)?))
    };
    // SAFETY: as for this function.
    unsafe { into_handle(error, make) }
}

/// Shows the plan of a statement of a registered session as `EXPLAIN` does before it is differentiated, for `xql_ffi_string_free`. Returns
/// null, with the reason in `error`, if it cannot be decoded.
///
/// # Safety
/// As for `xql_ffi_plan_optimized`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xql_ffi_plan_shown(
    session: *const c_char,
    plan: *const u8,
    size: usize,
    error: *mut *mut c_char,
) -> *mut c_char {
    let make = || {
        // SAFETY: as for this function.
        let (session, plan) = unsafe { (str_from_ptr(session)?, slice_from_ptr(plan, size)?) };
        Ok(CString::new(xql_session::show_plan(session, plan)?).unwrap_or_default())
    };
    // SAFETY: as for this function; the handle is freed once.
    unsafe {
        let made = into_handle(error, make);
        let shown = made.as_mut().map(std::mem::take);
        free_handle(made);
        shown.map_or(null_mut(), CString::into_raw)
    }
}

/// Returns the bytes of a plan, which live as long as the plan, and writes their number to `size` unless it is null.
///
/// # Safety
/// `plan` is null or comes from `xql_ffi_plan_optimized`; `size` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xql_ffi_plan_bytes(plan: *const xql_ffi_plan, size: *mut usize) -> *const u8 {
    // SAFETY: as for this function.
    let Some(xql_ffi_plan(bytes)) = (unsafe { plan.as_ref() }) else { return null() };
    if !size.is_null() {
        // SAFETY: as for this function.
        unsafe { *size = bytes.len() };
    }
    bytes.as_ptr()
}

/// Frees a plan.
///
/// # Safety
/// `plan` is null or comes from `xql_ffi_plan_optimized` and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xql_ffi_plan_free(plan: *mut xql_ffi_plan) {
    // SAFETY: as for this function.
    unsafe { free_handle(plan) }
}

/// A statement that may have to be planned by this library.
#[allow(non_camel_case_types)]
pub struct xql_ffi_statement {
    /// The statement until it is planned.
    statement: Option<StatementText>,
    /// The names of its tables, and their plans as the session encodes them.
    tables: Vec<(CString, Vec<u8>)>,
    /// The text that the session plans instead, and the name of the table that it reads.
    rewritten: [CString; 2],
}

/// Parses a statement of a registered session that may have to be planned by this library, since its query reads some name several times.
/// Returns null for another statement, and also writes the reason to `error` if the text is no statement.
///
/// # Safety
/// `session` and `sql` are null or strings that end in NUL; `error` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xql_ffi_statement_new(
    session: *const c_char,
    sql: *const c_char,
    error: *mut *mut c_char,
) -> *mut xql_ffi_statement {
    let make = || {
        // SAFETY: as for this function.
        let (session, sql) = unsafe { (str_from_ptr(session)?, str_from_ptr(sql)?) };
        let statement = StatementText::try_new(session, sql)?;
        let tables = statement.iter().flat_map(StatementText::tables);
        let tables = tables.map(|name| (CString::new(name).unwrap_or_default(), vec![])).collect();
        Ok(xql_ffi_statement { statement, tables, rewritten: Default::default() })
    };
    // SAFETY: as for this function; a handle to nothing is freed once.
    unsafe {
        let made = into_handle(error, make);
        if made.as_ref().is_some_and(|made| made.statement.is_none()) {
            free_handle(made);
            return null_mut();
        }
        made
    }
}

/// Returns the quoted name of a table that a statement may read, by its index; null behind the last one.
///
/// # Safety
/// `statement` is null or comes from `xql_ffi_statement_new`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xql_ffi_statement_table(statement: *const xql_ffi_statement, place: usize) -> *const c_char {
    // SAFETY: as for this function.
    let statement = unsafe { statement.as_ref() };
    statement.and_then(|statement| statement.tables.get(place)).map_or(null(), |(name, _)| name.as_ptr())
}

/// Sets the plan of the table with this index, as `size` bytes that the session encoded. A table that does not exist has none.
///
/// # Safety
/// `statement` is null or comes from `xql_ffi_statement_new`; `plan` points to `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xql_ffi_statement_scan(
    statement: *mut xql_ffi_statement,
    place: usize,
    plan: *const u8,
    size: usize,
) {
    // SAFETY: as for this function.
    let (statement, plan) = unsafe { (statement.as_mut(), slice_from_ptr(plan, size)) };
    let table = statement.and_then(|statement| statement.tables.get_mut(place));
    if let (Some((_, known)), Ok(plan)) = (table, plan) {
        *known = plan.to_vec();
    }
}

/// Sets the values of the parameters of a statement, as `size` bytes of an Arrow stream of one row. Returns whether it has one, and writes the
/// reason to `error` if not.
///
/// # Safety
/// `statement` is null or comes from `xql_ffi_statement_new`; `row` points to `size` bytes; `error` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xql_ffi_statement_values(
    statement: *mut xql_ffi_statement,
    row: *const u8,
    size: usize,
    error: *mut *mut c_char,
) -> bool {
    let make = || {
        // SAFETY: as for this function.
        let (statement, row) = unsafe { (statement.as_mut(), slice_from_ptr(row, size)?) };
        match statement.and_then(|statement| statement.statement.as_mut()) {
            Some(statement) => statement.set_values(row),
            None => Err(plan_datafusion_err!("a statement is missing")),
        }
    };
    // SAFETY: as for this function; the handle of nothing is freed once.
    unsafe {
        let made = into_handle(error, make);
        let is_set = !made.is_null();
        free_handle(made);
        is_set
    }
}

/// Plans a statement, once, as a table that the session reads in its place: a component with an `FFI_TableProvider`. With `shares_ctes`, CTEs
/// are computed once even without a derivative. Returns null if the session has to plan the statement itself, and also writes the reason to
/// `error` if it cannot be planned.
///
/// # Safety
/// `statement` is null or comes from `xql_ffi_statement_new`; `error` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xql_ffi_statement_plan(
    statement: *mut xql_ffi_statement,
    shares_ctes: bool,
    error: *mut *mut c_char,
) -> *mut xql_ffi_component {
    let make = || {
        // SAFETY: as for this function.
        let Some(this) = (unsafe { statement.as_mut() }) else {
            return Err(plan_datafusion_err!("a statement is missing"));
        };
        let Some(statement) = this.statement.take() else { return Ok(None) };
        let scans: Vec<_> = this.tables.iter().map(|(_, plan)| plan.as_slice()).collect();
        let Some(planned) = statement.plan(&scans, shares_ctes)? else { return Ok(None) };
        this.rewritten = [planned.sql, planned.name].map(|text| CString::new(text).unwrap_or_default());
        Ok(Some(xql_ffi_component::new(planned.table)))
    };
    // SAFETY: as for this function; the handle of what may be there is freed once.
    unsafe {
        let made = into_handle(error, make);
        let component = made.as_mut().and_then(Option::take);
        free_handle(made);
        component.map_or(null_mut(), |component| Box::into_raw(Box::new(component)))
    }
}

/// Returns what the session plans in the place of a planned statement: the text, or the `name` of the table that it reads.
///
/// # Safety
/// `statement` is null or comes from `xql_ffi_statement_new`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xql_ffi_statement_of_host(statement: *const xql_ffi_statement, name: bool) -> *const c_char {
    // SAFETY: as for this function.
    let statement = unsafe { statement.as_ref() };
    statement.map_or(null(), |statement| statement.rewritten[usize::from(name)].as_ptr())
}

/// Frees a statement.
///
/// # Safety
/// `statement` is null or comes from `xql_ffi_statement_new` and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xql_ffi_statement_free(statement: *mut xql_ffi_statement) {
    // SAFETY: as for this function.
    unsafe { free_handle(statement) }
}

/// Counts the tables, functions and plans that are encoded and not yet decoded: none while no statement is being planned.
#[unsafe(no_mangle)]
pub extern "C" fn xql_ffi_crossings() -> usize {
    xql_session::pending_handles()
}
