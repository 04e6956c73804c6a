//! Expressions that say whether their value may be NULL, and change nothing else.
//!
//! They are expressions of DataFusion, so that a plan with them can be sent anywhere a plan can be sent.

use datafusion_common::Result;
use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_expr::{Expr, Operator, lit, when};
use datafusion_functions::math::random;
use xql_autodiff::vocabulary::columns::is_volatile;

use super::expressions::unaliased;

/// `expr` as an expression that may be NULL by its type: `CASE WHEN random() >= 0 THEN expr END`.
///
/// No optimizer can tell that the condition always holds, so that it stays what it is. `nullif(expr, NULL)` or
/// `TRY_CAST(expr AS its type)` would become `expr` again where that is a constant.
pub fn nullable(expr: Expr) -> Result<Expr> {
    let (table, name) = expr.qualified_name();
    let always = random().call(vec![]).gt_eq(lit(0.0));
    Ok(when(always, expr).end()?.alias_qualified(table, name))
}

/// Unwraps an expression from [`nullable`].
pub fn unwrap_nullable(expr: &Expr) -> Option<&Expr> {
    let Expr::Case(case) = expr else { return None };
    let ([(condition, value)], None, None) = (case.when_then_expr.as_slice(), &case.expr, &case.else_expr) else {
        return None;
    };
    let always = match condition.as_ref() {
        Expr::BinaryExpr(comparison) => {
            matches!(
                (comparison.left.as_ref(), comparison.right.as_ref()),
                (Expr::ScalarFunction(call), zero) if call.func == random() && *zero == lit(0.0)
            ) && comparison.op == Operator::GtEq
        }
        _ => false,
    };
    always.then_some(value)
}

/// Returns the expression without its names and without what makes it nullable.
pub fn unwrap_all(expr: &Expr) -> &Expr {
    let named = unaliased(expr);
    unwrap_nullable(named).map_or(named, unwrap_all)
}

/// Returns whether an expression draws a random number or the like. What makes it nullable draws one that changes nothing.
pub fn draws(expr: &Expr) -> bool {
    // Most draw nothing at all.
    is_volatile(expr) && is_volatile(&without_wrappers(expr))
}

fn without_wrappers(expr: &Expr) -> Expr {
    let changed = expr.clone().transform_up(|part| match unwrap_nullable(&part) {
        Some(value) => Ok(Transformed::yes(value.clone())),
        None => Ok(Transformed::no(part)),
    });
    debug_assert!(changed.is_ok(), "the closure never fails");
    changed.map_or_else(|_| expr.clone(), |changed| changed.data)
}
