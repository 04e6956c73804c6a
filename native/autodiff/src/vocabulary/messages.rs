//! How messages show what the user wrote.

use datafusion_common::DataFusionError;
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

/// The message of an error without what it starts with when displayed.
pub fn message_of(error: DataFusionError) -> String {
    match error {
        DataFusionError::Plan(message) | DataFusionError::Internal(message) => message,
        other => other.strip_backtrace(),
    }
}
