//! One shared object with two Python modules and a C library in it.
//!
//! `_internal` is that of the crate `datafusion-python`, unmodified: its `PyInit__internal` is exported from here. `_engine`
//! is the companion, whose `install` replaces methods of `_internal`. The library is that of `xql-plugin`, which `xql_ffi` loads from
//! here where DataFusion is of this version: its own copy is for another one. In layers, each using only those before it:
//!
//! 1. `method` puts a built-in method in place of another; `scalar_udf` makes Python objects of Rust functions, and back.
//! 2. `capsule` imports what other libraries export: a scalar function, its `simplify`, and what goes with them.
//! 3. `from_pycapsule` imports scalar functions together with their `simplify`.
//! 4. `operators` recognizes the differential operators among these; `interrupt` makes calls that Ctrl-C interrupts.
//! 5. `sessions` adds the rules of differential operators to every session; `planning` converts refusals to exceptions;
//!    `progress` reports the steps of recursive queries.

mod capsule;
mod from_pycapsule;
mod interrupt;
mod method;
mod operators;
mod planning;
mod progress;
mod scalar_udf;
mod sessions;

use pyo3::prelude::*;
// Its functions are exported from here.
use xql_plugin as _;

#[pymodule]
mod _engine {
    use super::{Bound, Py, PyAny, PyModule, PyModuleMethods, PyResult, pyfunction};
    use crate::{from_pycapsule, planning, progress, sessions};
    use pyo3::types::PyAnyMethods;

    /// Extends `module`, the `_internal` of this shared object.
    #[pyfunction]
    fn install(module: &Bound<'_, PyModule>) -> PyResult<()> {
        from_pycapsule::extend(module.getattr("ScalarUDF")?.cast()?)?;
        sessions::extend(module.getattr("SessionContext")?.cast()?)?;
        planning::extend_sessions(module.getattr("SessionContext")?.cast()?)?;
        planning::extend_frames(module.getattr("DataFrame")?.cast()?)?;
        planning::extend_streams(module.getattr("RecordBatchStream")?.cast()?)
    }

    /// Calls `callable` for every step of recursive queries that are planned from now on; `None` removes it.
    #[pyfunction]
    #[pyo3(signature = (callable))]
    fn observe(callable: Option<Py<PyAny>>) {
        progress::observe(callable);
    }

    /// Stops all callbacks. Returns once the running calls have ended, at the latest after five seconds.
    #[pyfunction]
    fn stop_observing(py: pyo3::Python<'_>) {
        progress::stop_observing(py);
    }

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("DATAFUSION_VERSION", datafusion::DATAFUSION_VERSION)
    }
}
