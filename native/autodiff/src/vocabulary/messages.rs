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

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion_common::plan_datafusion_err;
    use datafusion_expr::{col, lit};

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(cut("x"), "x");
        assert_eq!(cut("∂".repeat(200)), "∂".repeat(200));
        assert_eq!(cut("∂".repeat(201)), format!("{} ...", "∂".repeat(200)));
        assert_eq!(abbreviated(&(col("x") * (col("y") + lit(1)))), "x * (y + 1)");
    }

    #[test]
    fn the_message_of_an_error_is_without_its_kind() {
        assert_eq!(message_of(plan_datafusion_err!("why")), "why");
        assert_eq!(message_of(DataFusionError::Execution("why".to_owned())), "Execution error: why");
    }

    #[test]
    fn literals_by_their_kinds() {
        for (value, kind) in [
            (ScalarValue::from("x"), "a string"),
            (ScalarValue::from(1_i64), "a number"),
            (ScalarValue::from(true), "a constant"),
            (ScalarValue::Float64(None), "a constant"),
        ] {
            assert_eq!(kind_of_literal(&value), kind, "{value}");
        }
    }
}
