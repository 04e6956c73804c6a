//! Replacement of built-in methods of a class.
//!
//! The replacement of a built-in method has to be one itself: a Python function or a closure has attributes, such as
//! `__closure__`, that no built-in method has, and tools that compare classes see them.

use std::any::Any;
use std::ffi::{CStr, CString};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::panic::PanicException;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyCFunction, PyDict, PyTuple, PyType};
use pyo3::{ffi, intern};

/// A method that replaces another one.
pub trait Method {
    /// The name of both.
    const NAME: &CStr;

    /// Returns the cell of the stock method.
    fn stock() -> &'static PyOnceLock<Py<PyAny>>;

    /// Calls the replacement. `this` is the object, or the class if the method is static.
    fn call<'py>(
        this: &Bound<'py, PyAny>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
        stock: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>>;
}

/// Replaces methods of a class by a function with the parameters of [`Method::call`].
macro_rules! replace_methods {
    ($class:expr, $call:path, $($name:literal)+) => {
        $({
            struct Replacement;

            impl $crate::method::Method for Replacement {
                const NAME: &std::ffi::CStr = $name;

                fn stock() -> &'static pyo3::sync::PyOnceLock<pyo3::Py<pyo3::PyAny>> {
                    static STOCK: pyo3::sync::PyOnceLock<pyo3::Py<pyo3::PyAny>> = pyo3::sync::PyOnceLock::new();
                    &STOCK
                }

                fn call<'py>(
                    this: &Bound<'py, PyAny>,
                    args: &Bound<'py, PyTuple>,
                    kwargs: Option<&Bound<'py, PyDict>>,
                    stock: &Bound<'py, PyAny>,
                ) -> PyResult<Bound<'py, PyAny>> {
                    $call(this, args, kwargs, stock)
                }
            }

            $crate::method::replace::<Replacement>($class)?;
        })+
    };
}
pub(crate) use replace_methods;

/// Replaces the method of `M`'s name, static or not, and keeps its signature and documentation.
pub fn replace<M: Method>(class: &Bound<'_, PyType>) -> PyResult<()> {
    let py = class.py();
    if M::stock().get(py).is_some() {
        return Ok(());
    }
    let stock = class.getattr(M::NAME)?;
    // It lives as long as the methods made of it, which is until the process ends.
    let definition = Box::leak(Box::new(ffi::PyMethodDef {
        ml_name: M::NAME.as_ptr(),
        ml_meth: ffi::PyMethodDefPointer { PyCFunctionWithKeywords: trampoline::<M> },
        ml_flags: ffi::METH_VARARGS | ffi::METH_KEYWORDS,
        ml_doc: documentation(&stock, M::NAME)?.into_raw(),
    }));
    let static_method = py.import(intern!(py, "builtins"))?.getattr(intern!(py, "staticmethod"))?;
    let replaced = class.getattr(intern!(py, "__dict__"))?.get_item(M::NAME)?;
    let is_static = replaced.is_instance(&static_method)?;
    let method = if is_static || replaced.is_instance_of::<PyCFunction>() {
        // SAFETY: `definition` is never freed, and `trampoline` takes what the flags say.
        let function = unsafe { ffi::PyCFunction_NewEx(definition, class.as_ptr(), null_mut()) };
        // SAFETY: what Python makes is a new reference, or null after an error.
        let function = unsafe { Bound::from_owned_ptr_or_err(py, function) }?;
        // `__new__` is static without being called so.
        if is_static { static_method.call1((function,))? } else { function }
    } else {
        // SAFETY: as above.
        let descriptor = unsafe { ffi::PyDescr_NewMethod(class.as_type_ptr(), definition) };
        // SAFETY: as above.
        unsafe { Bound::from_owned_ptr_or_err(py, descriptor) }?
    };
    M::stock().get_or_init(py, || stock.unbind());
    class.setattr(M::NAME, method)
}

/// Returns the documentation of `stock` in the form of a built-in function: preceded by the signature, which `inspect` reads there.
fn documentation(stock: &Bound<'_, PyAny>, name: &CStr) -> PyResult<CString> {
    let signature: Option<String> = stock.getattr("__text_signature__")?.extract()?;
    let text: Option<String> = stock.getattr("__doc__")?.extract()?;
    let signature = signature.map(|parameters| format!("{}{parameters}\n--\n\n", name.to_string_lossy()));
    let whole = signature.unwrap_or_default() + &text.unwrap_or_default();
    CString::new(whole).map_err(|error| PyValueError::new_err(error.to_string()))
}

unsafe extern "C" fn trampoline<M: Method>(
    this: *mut ffi::PyObject,
    args: *mut ffi::PyObject,
    kwargs: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    Python::attach(|py| {
        let call = || {
            // SAFETY: Python calls with an object and a tuple, which live longer than the call.
            let (this, args) = unsafe { (Bound::from_borrowed_ptr(py, this), Bound::from_borrowed_ptr(py, args)) };
            // SAFETY: so does the dictionary, which may be null.
            let kwargs = unsafe { Bound::from_borrowed_ptr_or_opt(py, kwargs) };
            let kwargs = kwargs.map(Bound::cast_into::<PyDict>).transpose()?;
            let stock = M::stock().get(py).ok_or_else(|| PyRuntimeError::new_err("the method is not installed"))?;
            M::call(&this, &args.cast_into()?, kwargs.as_ref(), stock.bind(py))
        };
        let called = catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| Err(panic_exception(panic.as_ref())));
        match called {
            Ok(returned) => returned.into_ptr(),
            Err(error) => {
                error.restore(py);
                null_mut()
            }
        }
    })
}

/// Converts a panic to the exception that pyo3 makes of one.
fn panic_exception(panic: &(dyn Any + Send)) -> PyErr {
    let message = panic.downcast_ref::<String>().cloned();
    let message = message.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    PanicException::new_err(message.unwrap_or_else(|| "panic from Rust code".to_owned()))
}
