//! DataFusion's own scalar functions.

use datafusion_common::{Result, internal_datafusion_err};
use datafusion_expr::ScalarUDF;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

/// DataFusion's own scalar functions by name and alias.
static FUNCTIONS: LazyLock<HashMap<String, Arc<ScalarUDF>>> = LazyLock::new(|| {
    let functions = datafusion_functions::all_default_functions();
    let named = functions.into_iter().flat_map(|function| {
        let names: Vec<String> = std::iter::once(function.name())
            .chain(function.aliases().iter().map(String::as_str))
            .map(str::to_owned)
            .collect();
        names.into_iter().map(move |name| (name, Arc::clone(&function)))
    });
    named.collect()
});

/// DataFusion's own function of this name, which the calculus itself uses.
pub fn function(name: &str) -> Result<&'static Arc<ScalarUDF>> {
    function_of_datafusion(name).ok_or_else(|| internal_datafusion_err!("DataFusion lacks the function {name}"))
}

/// DataFusion's own function of this name or alias, for use in a formula.
pub fn function_of_datafusion(name: &str) -> Option<&'static Arc<ScalarUDF>> {
    FUNCTIONS.get(name)
}

/// Whether a function is DataFusion's own, not another one of its name.
pub fn is_of_datafusion(function: &ScalarUDF) -> bool {
    function_of_datafusion(function.name()).is_some_and(|own| own.as_ref() == function)
}
