//! Expressions as they are under their names.

use arrow::datatypes::DataType;
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::{Expr, Operator, binary_expr, cast};
use datafusion_functions::string::expr_fn::concat;

/// Returns the expression without the names that it has been given.
pub fn unaliased(expr: &Expr) -> &Expr {
    match expr {
        Expr::Alias(alias) => unaliased(&alias.expr),
        other => other,
    }
}

/// Returns whether an aggregate is the value of one row of a group, chosen by the order of the rows.
pub fn is_of_one_row(aggregate: &Expr) -> bool {
    match unaliased(aggregate) {
        Expr::AggregateFunction(call) => {
            matches!(call.func.name(), "first_value" | "last_value" | "nth_value")
        }
        _ => false,
    }
}

/// Returns an expression of this type in which, if it is a float, both zeros are one: DataFusion orders -0.0 before 0.0, which
/// are the same number.
pub fn one_zero(expr: Expr, data_type: &DataType) -> Result<Expr> {
    if !data_type.is_floating() {
        return Ok(expr);
    }
    let zero = Expr::Literal(ScalarValue::new_zero(data_type)?, None);
    Ok(binary_expr(expr, Operator::Plus, zero))
}

/// Returns an expression of this type that is an error when the query runs, which shows these values one after the other.
///
/// The first value begins with the name of a kind of refusal, by which bindings make an exception of the error. What it shows cannot
/// be converted to the type, and one of the values has to be no literal: a constant the planner would compute.
pub fn failing(shown: impl IntoIterator<Item = Expr>, data_type: DataType) -> Expr {
    let text = |value| match value {
        literal @ Expr::Literal(..) => literal,
        value => cast(value, DataType::Utf8),
    };
    cast(concat(shown.into_iter().map(text).collect()), data_type)
}
