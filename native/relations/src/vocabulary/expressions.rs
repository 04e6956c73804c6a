//! Expressions as they are under their names.

use datafusion_expr::Expr;

/// The expression without the names that it has been given.
pub fn unaliased(expr: &Expr) -> &Expr {
    match expr {
        Expr::Alias(alias) => unaliased(&alias.expr),
        other => other,
    }
}
