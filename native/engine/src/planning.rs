//! The methods that plan and execute queries. For queries that differentiate, refusals become exceptions of `xql_ffi`, and Ctrl-C
//! interrupts planning.

use std::borrow::Cow;
use std::iter;

use datafusion_python::sql::logical::PyLogicalPlan;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyType};
use xql_text::with_materialization;

use crate::interrupt::call_interruptibly;
use crate::method::replace_methods;
use crate::operators::recognize;

/// The module of `xql_ffi` that converts messages to exceptions.
const ERRORS: &str = "xql_ffi._errors";

/// Replaces the methods of sessions.
pub fn extend_sessions(class: &Bound<'_, PyType>) -> PyResult<()> {
    replace_methods!(class, plan_statement, c"sql_with_options");
    replace_methods!(class, plan_query, c"execute_logical_plan");
    Ok(())
}

/// Replaces the methods of frames.
pub fn extend_frames(class: &Bound<'_, PyType>) -> PyResult<()> {
    replace_methods!(class, plan_query,
        c"select" c"select_exprs" c"filter" c"with_column" c"with_columns" c"aggregate" c"window" c"sort"
        c"optimized_logical_plan" c"execution_plan" c"explain" c"collect" c"collect_partitioned" c"collect_column" c"cache" c"count"
        c"show" c"describe" c"__repr__" c"_repr_html_" c"execute_stream" c"execute_stream_partitioned" c"__arrow_c_stream__" c"to_arrow_table"
        c"to_pandas" c"to_polars" c"to_pydict" c"to_pylist" c"write_csv" c"write_json" c"write_parquet"
        c"write_parquet_with_options" c"write_table"
    );
    Ok(())
}

/// Replaces the methods of streams of batches.
pub fn extend_streams(class: &Bound<'_, PyType>) -> PyResult<()> {
    replace_methods!(class, next_batch, c"next" c"__next__");
    Ok(())
}

/// Calls `stock`, a method of a stream.
fn next_batch<'py>(
    this: &Bound<'py, PyAny>,
    args: &Bound<'py, PyTuple>,
    kwargs: Option<&Bound<'py, PyDict>>,
    stock: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let called = stock.call(with_this(this, args)?, kwargs);
    called.map_err(|error| translate_error(this.py(), &error, None).unwrap_or(error))
}

/// Calls `stock`, a method of `this` that takes a statement, after rewriting `AS MATERIALIZED`, which DataFusion does not parse.
fn plan_statement<'py>(
    this: &Bound<'py, PyAny>,
    args: &Bound<'py, PyTuple>,
    kwargs: Option<&Bound<'py, PyDict>>,
    stock: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let query = sql(args, kwargs).unwrap_or_default();
    let Cow::Owned(query) = with_materialization(&query) else { return plan_query(this, args, kwargs, stock) };
    match kwargs.filter(|_| args.is_empty()) {
        Some(kwargs) => {
            let kwargs = kwargs.copy()?;
            kwargs.set_item("query", query)?;
            plan_query(this, args, Some(&kwargs), stock)
        }
        None => {
            let mut given: Vec<_> = args.iter().collect();
            given[0] = query.into_pyobject(this.py())?.into_any();
            plan_query(this, &PyTuple::new(this.py(), given)?, kwargs, stock)
        }
    }
}

/// Calls `stock`, a method of `this`.
fn plan_query<'py>(
    this: &Bound<'py, PyAny>,
    args: &Bound<'py, PyTuple>,
    kwargs: Option<&Bound<'py, PyDict>>,
    stock: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let with_this = with_this(this, args)?;
    let query = sql(args, kwargs);
    let called = if may_differentiate(this, query.as_deref()) {
        call_interruptibly(stock, &with_this, kwargs)
    } else {
        stock.call(with_this, kwargs)
    };
    called.map_err(|error| translate_error(this.py(), &error, query.as_deref()).unwrap_or(error))
}

/// Returns the arguments of a method that is called as a function.
fn with_this<'py>(this: &Bound<'py, PyAny>, args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyTuple>> {
    PyTuple::new(this.py(), iter::once(this.clone()).chain(args).collect::<Vec<_>>())
}

/// Returns the statement, if it is an argument of the method.
fn sql(args: &Bound<'_, PyTuple>, kwargs: Option<&Bound<'_, PyDict>>) -> Option<String> {
    let by_name = kwargs.and_then(|kwargs| kwargs.get_item("query").ok().flatten());
    let argument = by_name.or_else(|| args.iter().next())?;
    argument.extract().ok()
}

/// Returns whether a statement, or the plan of a frame, may call an operator.
fn may_differentiate(this: &Bound<'_, PyAny>, query: Option<&str>) -> bool {
    let plan = this.call_method0("logical_plan").ok();
    let plan = plan.and_then(|plan| plan.cast::<PyLogicalPlan>().ok().map(|plan| plan.borrow().plan()));
    if let Some(plan) = plan {
        return xql_relations::has_calls(&plan, recognize).unwrap_or(false);
    }
    let query = query.unwrap_or_default().to_ascii_lowercase();
    ["grad", "jvp", "vjp"].iter().any(|operator| query.contains(operator))
}

/// Converts an error about a derivative to an exception of `xql_ffi`.
fn translate_error(py: Python<'_>, error: &PyErr, query: Option<&str>) -> Option<PyErr> {
    // A program that differentiates has imported it.
    let modules = py.import("sys").ok()?.getattr("modules").ok()?;
    let errors = modules.cast::<PyDict>().ok()?.get_item(ERRORS).ok()??;
    let message = error.value(py).str().ok()?;
    let exception = errors.call_method1("translated", (message, query)).ok()?;
    (!exception.is_none()).then(|| PyErr::from_value(exception))
}
