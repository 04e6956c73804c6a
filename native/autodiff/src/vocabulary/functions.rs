//! The scalar functions that the calculus knows: DataFusion's own, and the special functions of this project.

use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{Result, internal_datafusion_err};
use datafusion_expr::{Expr, HigherOrderUDF, ScalarUDF};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

/// The function whose value counts as constant.
pub const STOP_GRADIENT: &str = "stop_gradient";

/// Returns whether a function is `stop_gradient`. Other libraries have it as well, so it is recognized by name, as functions of users are.
pub fn is_stop(function: &ScalarUDF, arity: usize) -> bool {
    function.name() == STOP_GRADIENT && arity == 1
}

/// Returns the argument of a call of `stop_gradient`.
pub fn stop_gradient_argument(expr: &Expr) -> Option<&Expr> {
    match expr {
        Expr::ScalarFunction(call) if is_stop(&call.func, call.args.len()) => call.args.first(),
        _ => None,
    }
}

/// Replaces calls of `stop_gradient` by their arguments.
///
/// # Errors
/// If the expression cannot be rebuilt.
pub fn remove_stop_gradient(expr: Expr) -> Result<Transformed<Expr>> {
    expr.transform_up(|part| {
        let inside = stop_gradient_argument(&part).cloned();
        Ok(inside.map_or_else(|| Transformed::no(part), Transformed::yes))
    })
}

type Functions = HashMap<String, Arc<ScalarUDF>>;

/// DataFusion's own functions that formulas may call, by name and alias.
static FUNCTIONS: LazyLock<Functions> = LazyLock::new(|| index_by_name(datafusion_functions::all_default_functions()));

/// The functions of lists, maps and other nested types, by name and alias.
static NESTED: LazyLock<Functions> =
    LazyLock::new(|| index_by_name(datafusion_functions_nested::all_default_nested_functions()));

static HIGHER_ORDER: LazyLock<Vec<Arc<HigherOrderUDF>>> =
    LazyLock::new(datafusion_functions_nested::all_default_higher_order_functions);

fn index_by_name(functions: Vec<Arc<ScalarUDF>>) -> Functions {
    let named = functions.into_iter().flat_map(|function| {
        let names: Vec<String> = std::iter::once(function.name())
            .chain(function.aliases().iter().map(String::as_str))
            .map(str::to_owned)
            .collect();
        names.into_iter().map(move |name| (name, Arc::clone(&function)))
    });
    named.collect()
}

/// Returns DataFusion's own function of this name, which the calculus itself uses.
///
/// # Errors
/// If DataFusion has none.
pub fn function(name: &str) -> Result<&'static Arc<ScalarUDF>> {
    find_builtin(name).ok_or_else(|| internal_datafusion_err!("DataFusion lacks the function {name}"))
}

/// Finds DataFusion's own function of numbers, texts or times of this name or alias, for use in a formula.
pub fn find_builtin(name: &str) -> Option<&'static Arc<ScalarUDF>> {
    FUNCTIONS.get(name)
}

/// Finds the function of this name or alias that a formula may call: DataFusion's own, or a special function.
pub fn find_callable(name: &str) -> Option<&'static Arc<ScalarUDF>> {
    find_builtin(name).or_else(|| xql_special::function(name))
}

/// Returns the name that the rule table has for a function, if it is DataFusion's own or a special function, and not another one of its
/// name.
pub fn table_name(function: &ScalarUDF) -> Option<&str> {
    let is_builtin =
        [&*FUNCTIONS, &*NESTED].iter().any(|own| own.get(function.name()).is_some_and(|own| own.as_ref() == function));
    if is_builtin { Some(function.name()) } else { xql_special::canonical(function) }
}

/// Returns whether a function that takes lambdas is DataFusion's own, not another one of its name.
pub fn is_builtin_higher_order(function: &HigherOrderUDF) -> bool {
    HIGHER_ORDER.iter().any(|own| own.as_ref() == function)
}
