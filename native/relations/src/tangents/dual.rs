//! Pairs of a value and its tangent, of which `min` and `max` choose one in a window, whose order is not theirs to set.
//!
//! Structs are ordered by their first field, then by the second. The tangent of a pair is the pair of the tangents.

use datafusion_common::Result;
use datafusion_expr::expr::Cast;
use datafusion_expr::{Expr, lit, when};
use datafusion_functions::core::expr_fn::{get_field, named_struct};

const VALUE: &str = "value";
const TANGENT: &str = "∂value";

/// Returns a value with its tangent.
pub fn pair(value: Expr, tangent: Expr) -> Expr {
    named_struct(vec![lit(VALUE), value, lit(TANGENT), tangent])
}

/// Returns the tangent in a pair.
pub fn tangent_in(pair: Expr) -> Expr {
    get_field(pair, TANGENT)
}

/// Returns the tangent of which an expression makes a pair.
pub fn tangent_of_pair(expr: &Expr) -> Option<&Expr> {
    let Expr::ScalarFunction(call) = expr else { return None };
    match (call.func.name(), call.args.as_slice()) {
        ("named_struct", [_, _, name, tangent]) if name == &lit(TANGENT) => Some(tangent),
        _ => None,
    }
}

/// Returns the pair whose tangent an expression is.
pub fn pair_of_tangent(expr: &Expr) -> Option<&Expr> {
    let Expr::ScalarFunction(call) = expr else { return None };
    match (call.func.name(), call.args.as_slice()) {
        ("get_field", [both, name]) if name == &lit(TANGENT) => Some(both),
        _ => None,
    }
}

/// Returns the tangent of a pair or of what is taken from one, by the tangents of its parts; nothing for any other expression.
pub fn linearize_pair(expr: &Expr, tangent: &impl Fn(&Expr) -> Result<Expr>) -> Result<Option<Expr>> {
    let call = match expr {
        Expr::ScalarFunction(call) => call,
        // One that is NULL where its column is.
        Expr::Case(case) if case.expr.is_none() && case.else_expr.is_none() => {
            return match case.when_then_expr.as_slice() {
                [(condition, value)] if is_of_pair(value) => {
                    when(condition.as_ref().clone(), tangent(value)?).end().map(Some)
                }
                _ => Ok(None),
            };
        }
        Expr::Cast(cast) => {
            let derived = linearize_pair(&cast.expr, tangent)?;
            return Ok(derived.map(|derived| Expr::Cast(Cast { expr: Box::new(derived), field: cast.field.clone() })));
        }
        _ => return Ok(None),
    };
    Ok(match (tangent_of_pair(expr), call.args.as_slice()) {
        (Some(derived), [_, value, ..]) => Some(pair(tangent(value)?, tangent(derived)?)),
        _ => match pair_of_tangent(expr) {
            Some(both) => Some(tangent_in(tangent(both)?)),
            None => None,
        },
    })
}

/// Returns whether an expression is taken from a pair.
fn is_of_pair(expr: &Expr) -> bool {
    match expr {
        Expr::Cast(cast) => is_of_pair(&cast.expr),
        other => pair_of_tangent(other).is_some(),
    }
}
