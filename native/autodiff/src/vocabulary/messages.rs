//! How messages show what the user wrote.

use arrow::datatypes::DataType;
use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{DataFusionError, ScalarValue, internal_err};
use datafusion_expr::expr::ScalarFunction;
use datafusion_expr::{ColumnarValue, Expr, Volatility, create_udf};
use datafusion_sql::unparser::Unparser;
use std::fmt;
use std::sync::Arc;

use super::transform::Transform;

/// Shows an expression in SQL as the user may have written it, truncated if it is long.
pub fn abbreviate(expr: &Expr) -> String {
    let asked = expr
        .clone()
        .transform_up(|part| Ok(variable_of_seed(&part).map_or_else(|| Transformed::no(part), Transformed::yes)));
    let expr = asked.map_or_else(|_| expr.clone(), |asked| asked.data);
    let sql = Unparser::default().with_pretty(true).expr_to_sql(&expr);
    let text = sql.map_or_else(|_| expr.human_display().to_string(), |sql| sql.to_string());
    truncate(restore_source_names(&text))
}

/// The prefix of columns and relations that derivatives add to a plan.
const MARK: char = '∂';
/// The separator between column and variable in the name of a derivative.
const PER: &str = "/∂";

/// Returns whether an expression is a column that derivatives have added, or reads one to say where another is 0.
pub fn is_added(expr: &Expr) -> bool {
    match expr {
        Expr::Column(column) => column.name.starts_with(MARK),
        Expr::Case(case) => case.else_expr.as_deref().is_some_and(is_added),
        _ => false,
    }
}

/// Converts a call of `jvp` that reads columns that derivatives have added, as variable or tangent, to the call of `grad` that it stands
/// for.
fn variable_of_seed(expr: &Expr) -> Option<Expr> {
    let Expr::ScalarFunction(call) = expr else { return None };
    let [function, variable, tangents @ ..] = call.args.as_slice() else { return None };
    let is_asked = is_added(variable) || tangents.iter().step_by(2).any(is_added);
    if call.func.name() != Transform::Tangent.name() || !is_asked {
        return None;
    }
    // It is shown, and never called.
    let never = Arc::new(|_: &[ColumnarValue]| internal_err!("a call in a message has been called"));
    let grad = create_udf(Transform::Grad.name(), vec![], DataType::Float64, Volatility::Immutable, never);
    Some(Expr::ScalarFunction(ScalarFunction::new_udf(Arc::new(grad), vec![function.clone(), variable.clone()])))
}

/// Replaces columns that derivatives have added to a plan by what they stand for: `∂rows."∂val #2"` by `val`, and `m."∂y/∂x"` by `grad(y,
/// x)`.
pub fn restore_source_names(text: &str) -> String {
    let mut shown = String::new();
    let mut rest = text;
    while let Some(start) = rest.find(MARK) {
        let quoted = rest[..start].ends_with('"');
        let (before, found) = rest.split_at(start);
        shown.push_str(before);
        let end = if quoted { found.find('"').unwrap_or(found.len()) } else { plain_end(found) };
        let (name, behind) = found.split_at(end);
        let behind = if quoted { behind.strip_prefix('"').unwrap_or(behind) } else { behind };
        if quoted {
            shown.pop();
        }
        rest = behind;
        // The user does not know a relation that has been added.
        match behind.strip_prefix('.') {
            Some(column) if column.starts_with(|next: char| next.is_alphanumeric() || "∂_\"".contains(next)) => {
                rest = column
            }
            _ => {
                if name.contains(PER) {
                    shown.truncate(strip_qualifier(&shown).len());
                }
                shown.push_str(&strip_marks(name));
            }
        }
    }
    shown.push_str(rest);
    shown
}

/// Returns the end of an unquoted name, with its number.
fn plain_end(text: &str) -> usize {
    let is_part = |part: char| part.is_alphanumeric() || part == '_' || part == MARK;
    let mut end = 0;
    loop {
        end += text[end..].find(|part| !is_part(part)).unwrap_or(text.len() - end);
        let number = text[end..].strip_prefix(" #").unwrap_or_default();
        let digits = number.bytes().take_while(u8::is_ascii_digit).count();
        if digits > 0 {
            end += " #".len() + digits;
        }
        if !text[end..].starts_with(PER) {
            return end;
        }
        end += 1;
    }
}

/// Strips the relation that qualifies a name.
fn strip_qualifier(text: &str) -> &str {
    let Some(relation) = text.strip_suffix('.') else { return text };
    match relation.strip_suffix('"').and_then(|quoted| quoted.rfind('"')) {
        Some(start) => &relation[..start],
        None => relation.trim_end_matches(|part: char| part.is_alphanumeric() || part == '_'),
    }
}

/// Strips the mark and the number from a name; a derivative becomes the call of `grad`.
fn strip_marks(name: &str) -> String {
    let plain = match name.rsplit_once(" #") {
        Some((plain, number)) if number.bytes().all(|digit| digit.is_ascii_digit()) => plain,
        _ => name,
    };
    if let Some((of, variable)) = plain.strip_prefix(MARK).and_then(|name| name.rsplit_once(PER)) {
        return format!("{}({}, {})", Transform::Grad.name(), self::strip_marks(of), self::strip_marks(variable));
    }
    let plain = plain.trim_start_matches(MARK);
    let is_simple = plain.chars().all(|part| part.is_ascii_lowercase() || part.is_ascii_digit() || part == '_');
    if is_simple { plain.to_owned() } else { format!("\"{plain}\"") }
}

/// Truncates a text that the user wrote, or that was made of one, if it is long.
pub fn truncate(text: impl fmt::Display) -> String {
    const MAX_LENGTH: usize = 200;
    let text = text.to_string();
    match text.char_indices().nth(MAX_LENGTH) {
        Some((end, _)) => format!("{} ...", &text[..end]),
        None => text,
    }
}

/// Says what an operator expects of the arguments that it differentiates by.
pub fn must_be_column(operator: &str) -> String {
    match operator {
        "jvp" => "the variables of jvp must be columns".to_owned(),
        other => format!("{other}'s second argument must be a column"),
    }
}

/// Names the kind of a literal.
pub fn literal_kind(value: &ScalarValue) -> &'static str {
    match value.data_type() {
        _ if value.is_null() => "a constant",
        text if text.is_string() => "a string",
        number if number.is_numeric() => "a number",
        _ => "a constant",
    }
}

/// Advises what to write in place of a literal where a column or an expression is expected: the name or the SQL in a string, without its
/// quotes. Returns `None` if the literal is no string.
pub fn unquoted_advice(value: &ScalarValue) -> Option<String> {
    let text = value.try_as_str()??.trim();
    let is_sql = |text: &str| text.chars().all(|part| part.is_ascii_graphic() || part == ' ');
    (!text.is_empty() && is_sql(text)).then(|| format!("Write {} without quotes", truncate(text)))
}

/// Returns the message of an error without the prefix of its kind.
pub fn error_text(error: DataFusionError) -> String {
    match error {
        DataFusionError::Plan(message) | DataFusionError::Internal(message) => message,
        other => other.strip_backtrace(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion_common::{Column, plan_datafusion_err};
    use datafusion_expr::{cast, col, lit};
    use datafusion_functions::math::expr_fn::power;

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(truncate("x"), "x");
        assert_eq!(truncate("∂".repeat(200)), "∂".repeat(200));
        assert_eq!(truncate("∂".repeat(201)), format!("{} ...", "∂".repeat(200)));
        assert_eq!(abbreviate(&(col("x") * (col("y") + lit(1)))), "x * (y + 1)");
    }

    #[test]
    fn the_message_of_an_error_is_without_its_kind() {
        assert_eq!(error_text(plan_datafusion_err!("why")), "why");
        assert_eq!(error_text(DataFusionError::Execution("why".to_owned())), "Execution error: why");
    }

    #[test]
    fn strings_are_to_be_written_without_quotes() {
        assert_eq!(unquoted_advice(&ScalarValue::from("x")).as_deref(), Some("Write x without quotes"));
        assert_eq!(unquoted_advice(&ScalarValue::from("x * y")).as_deref(), Some("Write x * y without quotes"));
        for other in [ScalarValue::from(""), ScalarValue::from("\n"), ScalarValue::Utf8(None), ScalarValue::from(1.0)] {
            assert_eq!(unquoted_advice(&other), None, "{other}");
        }
    }

    #[test]
    fn literals_by_their_kinds() {
        for (value, kind) in [
            (ScalarValue::from("x"), "a string"),
            (ScalarValue::from(1_i64), "a number"),
            (ScalarValue::from(true), "a constant"),
            (ScalarValue::Float64(None), "a constant"),
        ] {
            assert_eq!(literal_kind(&value), kind, "{value}");
        }
    }

    #[test]
    fn added_columns_are_called_as_what_they_are_of() {
        for (text, shown) in [
            ("∂rows.∂val #2 varies", "val varies"),
            (r#"CAST("∂groups"."∂sum #2" AS DOUBLE)"#, "CAST(sum AS DOUBLE)"),
            (r#""∂rows"."∂My value #12""#, r#""My value""#),
            ("∂rows.∂row, and t.x #2", "row, and t.x #2"),
            ("∂q/∂w #2 of m.∂q/∂w", "grad(q, w) of grad(q, w)"),
            (r#"varies with "∂h"."∂∂h #2/∂eps""#, "varies with grad(h, eps)"),
            ("∂∂h #2/∂eps #3 varies", "grad(h, eps) varies"),
            (r#"m."∂∂q/∂w/∂Other #3" + 1"#, r#"grad(grad(q, w), "Other") + 1"#),
            ("comes from ∂rows.", "comes from rows."),
            ("no such column", "no such column"),
        ] {
            assert_eq!(restore_source_names(text), shown);
        }
    }

    #[test]
    fn expressions_are_shown_without_what_has_been_added() {
        let added = Expr::Column(Column::new(Some("∂groups"), "∂sum #2"));
        let shown = abbreviate(&power(cast(added, DataType::Float64), col("t.y")));
        assert_eq!(shown, "power(CAST(sum AS DOUBLE), t.y)");
        let jvp = create_udf("jvp", vec![], DataType::Float64, Volatility::Immutable, Arc::new(|_| internal_err!("")));
        let [added, cotangent] = ["∂val #2", "∂cotangent"].map(|name| Expr::Column(Column::new_unqualified(name)));
        let shown = |arguments| abbreviate(&jvp.call(arguments));
        assert_eq!(shown(vec![added.clone() * col("y"), added.clone(), lit(1.0)]), "grad(val * y, val)");
        assert_eq!(shown(vec![added, col("y"), cotangent]), "grad(val, y)");
        assert_eq!(shown(vec![col("x"), col("x"), lit(1.0)]), "jvp(x, x, 1.0)");
    }
}
