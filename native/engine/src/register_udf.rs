//! `SessionContext.register_udf`, which adds the analyzer rules of differential operators to the session.

use std::sync::Arc;

use datafusion::logical_expr::ScalarUDF;
use datafusion_python::context::PySessionContext;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyDict, PyTuple};
use xql_autodiff::Differential;
use xql_simplify_ffi::SimplifyingScalarUDF;

/// Puts a method in place of `SessionContext.register_udf` of `module`.
///
/// It calls the method that was there before. If a differential operator has been registered, the session then has the rules,
/// once.
pub fn install(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let name = intern!(py, "register_udf");
    let class = module.getattr(intern!(py, "SessionContext"))?;
    let stock = class.getattr(name)?.unbind();
    let register_udf = PyCFunction::new_closure(
        py,
        Some(c"register_udf"),
        // What `inspect.signature` reads.
        Some(c"register_udf(self, /, udf)\n--\n\n"),
        move |args: &Bound<'_, PyTuple>, kwargs: Option<&Bound<'_, PyDict>>| {
            let registered = stock.call(args.py(), args, kwargs)?;
            if let Ok(session) = args.get_item(0)
                && let Ok(session) = session.cast::<PySessionContext>()
            {
                xql_relations::add_rules(&session.borrow().ctx, recognize);
            }
            PyResult::Ok(registered)
        },
    )?;
    // A built-in function is no method of what it is an attribute of.
    let method = py.import("functools")?.getattr("partialmethod")?.call1((register_udf,))?;
    class.setattr(name, method)
}

/// The differential operator that an imported function is.
fn recognize(function: &ScalarUDF) -> Option<Differential> {
    let imported = function.inner().downcast_ref::<SimplifyingScalarUDF>()?;
    imported.companion().map(|tangent| Differential { tangent: Arc::clone(tangent) })
}
