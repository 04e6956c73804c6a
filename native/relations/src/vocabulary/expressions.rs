//! Expressions as they are under their names.

use arrow::datatypes::DataType;
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::{Expr, Operator, binary_expr};

/// The expression without the names that it has been given.
pub fn unaliased(expr: &Expr) -> &Expr {
    match expr {
        Expr::Alias(alias) => unaliased(&alias.expr),
        other => other,
    }
}

/// A float of this type with one zero: DataFusion orders -0.0 before 0.0, which are the same number.
pub fn one_zero(float: Expr, data_type: &DataType) -> Result<Expr> {
    let zero = Expr::Literal(ScalarValue::new_zero(data_type)?, None);
    Ok(binary_expr(float, Operator::Plus, zero))
}
