//! Recognition of differential operators among imported functions.

use std::sync::Arc;

use datafusion::logical_expr::ScalarUDF;
use xql_autodiff::Differential;
use xql_simplify_ffi::SimplifyingScalarUDF;

/// Recognizes an imported function as a differential operator.
pub fn recognize(function: &ScalarUDF) -> Option<Differential> {
    let imported = function.inner().downcast_ref::<SimplifyingScalarUDF>()?;
    let [tangent, analyzed] = imported.companions() else { return None };
    Some(Differential { tangent: Arc::clone(tangent), analyzed: Arc::clone(analyzed) })
}
