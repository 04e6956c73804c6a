//! One shared object with two Python modules in it.
//!
//! `_internal` is that of the crate `datafusion-python`, unmodified: its `PyInit__internal` is exported from here. `_engine`
//! is the companion: its `install` lets `_internal` import scalar functions together with their `simplify`, and gives a
//! session in which a differential operator is registered the analyzer rules that go with it.

#![warn(clippy::undocumented_unsafe_blocks)]

mod capsule;
mod from_pycapsule;
mod register_udf;
mod scalar_udf;

use pyo3::prelude::*;

#[pymodule]
mod _engine {
    use super::{Bound, PyModule, PyModuleMethods, PyResult, pyfunction};

    /// Extends `module`, the `_internal` of this shared object.
    #[pyfunction]
    fn install(module: &Bound<'_, PyModule>) -> PyResult<()> {
        super::from_pycapsule::install(module)?;
        super::register_udf::install(module)
    }

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("DATAFUSION_VERSION", datafusion::DATAFUSION_VERSION)
    }
}
