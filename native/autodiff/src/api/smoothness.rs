//! Expressions whose derivatives cannot be infinite.

use datafusion_common::{Column, DFSchema, Result};
use datafusion_expr::Expr;
use std::collections::HashSet;

use crate::algebra::{self, Algebra};
use crate::graph::import;
use crate::vocabulary::opaque_expr::unwrap_opaque;

/// Returns whether an expression chooses among no values that vary, and is finite with its derivatives by the rules of the table wherever
/// its columns are, overflow aside. `varies` says whether a column varies.
///
/// Then the products of its derivatives with a cotangent of 0 are 0. Otherwise 0 may be multiplied by an infinite derivative, as that of
/// `ln(x)` at 0, and an infinite cotangent by the derivative 0 of a branch that is not taken.
///
/// # Errors
/// If the expression cannot be typed over the columns.
pub fn is_smooth(expression: &Expr, schema: &DFSchema, varies: impl Fn(&Column) -> bool) -> Result<bool> {
    let mut algebra = Algebra::new(schema);
    let root = import(&mut algebra, &unwrap_opaque(expression.clone())?.data)?;
    let mut varying = HashSet::new();
    let mut chooses = false;
    // Operands precede the nodes computed from them.
    for id in algebra.reachable(root) {
        let node = algebra.node(id);
        let is_varying = match &node.shape {
            Expr::Column(column) => varies(column),
            _ => node.children.iter().any(|child| varying.contains(child)),
        };
        if is_varying {
            varying.insert(id);
            chooses |= node.is_choice();
        }
    }
    Ok(algebra::is_smooth(&algebra, root) && !chooses)
}
