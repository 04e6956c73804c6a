//! Whether derivatives can be infinite.

use datafusion_common::{DFSchema, Result};
use datafusion_expr::Expr;

use crate::algebra::{self, Algebra};
use crate::graph::import;
use crate::vocabulary::spelled::read;

/// Whether an expression chooses among no values, and is finite with its derivatives by the rules of the table wherever its columns
/// are, overflow aside.
///
/// Then the products of its derivatives with a cotangent of 0 are 0. Else 0 may meet an infinite derivative, as that of `ln(x)` at
/// 0, and an infinite cotangent the derivative 0 of a branch that is not taken.
///
/// # Errors
/// If the expression cannot be typed over the columns.
pub fn is_smooth(expression: &Expr, schema: &DFSchema) -> Result<bool> {
    let mut algebra = Algebra::new(schema);
    let root = import(&mut algebra, &read(expression.clone())?.data)?;
    Ok(algebra::is_smooth(&algebra, root)
        && !algebra.reachable(root).into_iter().any(|id| algebra.node(id).is_choice()))
}
