//! How messages show what the user wrote.

use datafusion_common::{DataFusionError, ScalarValue};
use datafusion_expr::Expr;
use datafusion_sql::unparser::Unparser;
use std::fmt;

/// An expression in SQL, cut where it would drown a message.
pub fn abbreviated(expr: &Expr) -> String {
    let sql = Unparser::default().with_pretty(true).expr_to_sql(expr);
    sql.map_or_else(|_| cut(expr.human_display()), cut)
}

/// What a message shows of a text that the user wrote, or that was made of one: its beginning, if it is long.
pub fn cut(text: impl fmt::Display) -> String {
    const LONGEST: usize = 200;
    let text = text.to_string();
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{} ...", &text[..end]),
        None => text,
    }
}

/// What is expected of the arguments of an operator that it differentiates by.
pub fn must_be_column(operator: &str) -> String {
    match operator {
        "jvp" => "the variables of jvp must be columns".to_owned(),
        other => format!("{other}'s second argument must be a column"),
    }
}

/// What a message calls a literal.
pub fn kind_of_literal(value: &ScalarValue) -> &'static str {
    match value.data_type() {
        _ if value.is_null() => "a constant",
        text if text.is_string() => "a string",
        number if number.is_numeric() => "a number",
        _ => "a constant",
    }
}

/// The message of an error without what it starts with when displayed.
pub fn message_of(error: DataFusionError) -> String {
    match error {
        DataFusionError::Plan(message) | DataFusionError::Internal(message) => message,
        other => other.strip_backtrace(),
    }
}
