//! Whether derivatives can be infinite.

use datafusion_common::{Column, DFSchema, Result};
use datafusion_expr::Expr;

use crate::algebra::{self, Algebra};
use crate::graph::import;
use crate::vocabulary::spelled::read;

/// Whether an expression chooses among no values that vary, and is finite with its derivatives by the rules of the table wherever its
/// columns are, overflow aside. `varies` says of each column whether it does.
///
/// Then the products of its derivatives with a cotangent of 0 are 0. Else 0 may meet an infinite derivative, as that of `ln(x)` at
/// 0, and an infinite cotangent the derivative 0 of a branch that is not taken.
///
/// # Errors
/// If the expression cannot be typed over the columns.
pub fn is_smooth(expression: &Expr, schema: &DFSchema, varies: impl Fn(&Column) -> bool) -> Result<bool> {
    let mut algebra = Algebra::new(schema);
    let root = import(&mut algebra, &read(expression.clone())?.data)?;
    let is_varying = |id| match &algebra.node(id).shape {
        Expr::Column(column) => varies(column),
        _ => false,
    };
    let chooses = |id| algebra.node(id).is_choice() && algebra.reachable(id).into_iter().any(is_varying);
    Ok(algebra::is_smooth(&algebra, root) && !algebra.reachable(root).into_iter().any(chooses))
}
