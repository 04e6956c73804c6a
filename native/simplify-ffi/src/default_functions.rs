//! DataFusion's own scalar functions, which both sides have and which therefore cross by name.

use std::sync::LazyLock;

use datafusion_common::{Result, plan_datafusion_err};
use datafusion_execution::TaskContext;
use datafusion_expr::ScalarUDF;
use datafusion_expr::registry::FunctionRegistry;

/// A registry of them under their names and aliases, as `datafusion-proto` wants it.
static DEFAULT_FUNCTIONS: LazyLock<Result<TaskContext>> = LazyLock::new(|| {
    let mut registry = TaskContext::default();
    for udf in datafusion_functions::all_default_functions() {
        registry.register_udf(udf)?;
    }
    for udf in datafusion_functions_nested::all_default_nested_functions() {
        registry.register_udf(udf)?;
    }
    Ok(registry)
});

/// The registry.
pub(crate) fn registry() -> Result<&'static TaskContext> {
    DEFAULT_FUNCTIONS
        .as_ref()
        .map_err(|error| plan_datafusion_err!("DataFusion's own functions do not register: {error}"))
}

/// Whether `udf` is the function DataFusion itself has under this name.
pub(crate) fn is_default(udf: &ScalarUDF) -> Result<bool> {
    let default = registry()?.scalar_functions().get(udf.name());
    Ok(default.is_some_and(|default| default.as_ref() == udf))
}
