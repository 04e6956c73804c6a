//! Whether derivatives can be infinite.

use datafusion_common::{DFSchema, Result};
use datafusion_expr::Expr;

use crate::algebra::Algebra;

/// Whether an expression and its derivatives by these rules of the table are finite wherever its columns are, overflow aside.
///
/// Then a cotangent of 0 contributes 0. Else 0 may meet an infinite derivative, as that of `ln(x)` at 0.
///
/// # Errors
/// If the expression cannot be typed over the columns.
pub fn is_smooth(expression: &Expr, schema: &DFSchema) -> Result<bool> {
    let mut algebra = Algebra::new(schema);
    let root = algebra.import(expression)?;
    Ok(algebra.is_smooth(root))
}
