//! Sessions that have the rules of differential operators from the start.
//!
//! An operator need not be registered to be called: `df.select(grad(...))` is an expression like any other, and without the rules
//! it would see one node of the plan alone. A `DataFrame` has the rules that its session had when it was made.

use std::sync::OnceLock;

use datafusion_python::context::PySessionContext;
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyType};

use crate::method::replace_methods;
use crate::operators::recognize;

/// Replaces all constructors of sessions by ones that add the rules.
pub fn extend(class: &Bound<'_, PyType>) -> PyResult<()> {
    if NEW.get().is_none() {
        // SAFETY: the class lives, and is one of the heap, whose slots may be read.
        let slot = unsafe { ffi::PyType_GetSlot(class.as_type_ptr(), ffi::Py_tp_new) };
        // SAFETY: a slot of this number holds a `newfunc` or is null, as is the `Option` of one that is none.
        let new = unsafe { std::mem::transmute::<*mut std::ffi::c_void, Option<ffi::newfunc>>(slot) };
        NEW.get_or_init(|| new);
    }
    replace_methods!(class, new, c"__new__");
    replace_methods!(class, global_ctx, c"global_ctx");
    Ok(())
}

/// The stock `__new__` slot, which cannot be reached by name once the method is replaced.
static NEW: OnceLock<Option<ffi::newfunc>> = OnceLock::new();

/// `SessionContext.__new__`.
fn new<'py>(
    this: &Bound<'py, PyAny>,
    args: &Bound<'py, PyTuple>,
    kwargs: Option<&Bound<'py, PyDict>>,
    _stock: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let new = NEW.get().copied().flatten().ok_or_else(|| PyRuntimeError::new_err("sessions cannot be made"))?;
    let first = args.iter().next();
    let class = first.as_ref().and_then(|first| first.cast::<PyType>().ok());
    let class = class.ok_or_else(|| PyTypeError::new_err("SessionContext.__new__(X): X is not a type object"))?;
    if !class.is_subclass(this)? {
        let name = class.name()?;
        return Err(PyTypeError::new_err(format!(
            "SessionContext.__new__({name}): {name} is not a subtype of SessionContext"
        )));
    }
    let rest = args.get_slice(1, args.len());
    let kwargs = kwargs.map_or(std::ptr::null_mut(), Bound::as_ptr);
    // SAFETY: it is called as Python calls it, with a class that has it, a tuple and a dictionary or null.
    let made = unsafe { new(class.as_type_ptr(), rest.as_ptr(), kwargs) };
    // SAFETY: what it makes is a new reference, or null after an error.
    with_rules(unsafe { Bound::from_owned_ptr_or_err(this.py(), made) }?)
}

/// `SessionContext.global_ctx`.
fn global_ctx<'py>(
    _class: &Bound<'py, PyAny>,
    args: &Bound<'py, PyTuple>,
    kwargs: Option<&Bound<'py, PyDict>>,
    stock: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    with_rules(stock.call(args, kwargs)?)
}

fn with_rules(session: Bound<'_, PyAny>) -> PyResult<Bound<'_, PyAny>> {
    xql_relations::add_rules(&session.cast::<PySessionContext>()?.borrow().ctx, recognize);
    Ok(session)
}
