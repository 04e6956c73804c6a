//! Values and types as text.

use arrow::datatypes::DataType;
use datafusion_common::{Result, ScalarValue, plan_err};
use datafusion_expr::expr::Cast;
use datafusion_expr::{Expr, lit};
use datafusion_sql::unparser::Unparser;
use sqlparser::ast;

use crate::binding::{Binding, Text};

/// Stands for a line break inside of a text in quotes, while lines are indented.
pub const LINE_BREAK: char = '\u{E000}';

/// The name of a type.
pub fn type_sql(data_type: &DataType) -> Result<String> {
    match data_type {
        DataType::Utf8 | DataType::Utf8View => return Ok("VARCHAR".to_owned()),
        DataType::Float16 | DataType::LargeUtf8 | DataType::Dictionary(..) => {
            return plan_err!("the type {data_type} has no name in SQL");
        }
        _ => {}
    }
    // The types of numbers and times are those of the unparser.
    let null = Expr::Cast(Cast::new(Box::new(lit(ScalarValue::Null)), data_type.clone()));
    match Unparser::default().expr_to_sql(&null)? {
        ast::Expr::Cast { data_type, .. } => Ok(data_type.to_string()),
        _ => plan_err!("the type {data_type} has no name in SQL"),
    }
}

/// A value, of the type that it has.
pub fn literal(value: &ScalarValue) -> Result<Text> {
    let number = |sql: String| Text::at(if sql.starts_with('-') { Binding::Sign } else { Binding::Closed }, sql);
    let typed = |sql: &str| Ok(Text::closed(format!("CAST({sql} AS {})", type_sql(&value.data_type())?)));
    if value.is_null() {
        return if value.data_type().is_null() { Ok(Text::closed("NULL")) } else { typed("NULL") };
    }
    Ok(match value {
        ScalarValue::Boolean(Some(value)) => Text::closed(if *value { "TRUE" } else { "FALSE" }),
        ScalarValue::Int64(Some(value)) => number(value.to_string()),
        ScalarValue::Float64(Some(value)) if value.is_finite() => number(format!("{value:?}")),
        ScalarValue::Float64(Some(value)) => typed(not_finite(*value))?,
        ScalarValue::Float32(Some(value)) if value.is_finite() => typed(&format!("{value:?}"))?,
        ScalarValue::Float32(Some(value)) => typed(not_finite((*value).into()))?,
        ScalarValue::Utf8(Some(text)) | ScalarValue::Utf8View(Some(text)) | ScalarValue::LargeUtf8(Some(text)) => {
            if text.contains(LINE_BREAK) {
                return plan_err!("the text {text:?} cannot be written");
            }
            Text::closed(format!("'{}'", text.replace('\'', "''").replace('\n', &LINE_BREAK.to_string())))
        }
        ScalarValue::Int8(_)
        | ScalarValue::Int16(_)
        | ScalarValue::Int32(_)
        | ScalarValue::UInt8(_)
        | ScalarValue::UInt16(_)
        | ScalarValue::UInt32(_)
        | ScalarValue::UInt64(_) => typed(&value.to_string())?,
        ScalarValue::Decimal32(..)
        | ScalarValue::Decimal64(..)
        | ScalarValue::Decimal128(..)
        | ScalarValue::Decimal256(..) => typed(&format!("'{}'", decimal(value)?))?,
        // Dates, times and intervals are those of the unparser.
        other => match other.data_type() {
            data_type if data_type.is_temporal() => {
                Text::closed(Unparser::default().expr_to_sql(&lit(other.clone()))?.to_string())
            }
            data_type => return plan_err!("the value {other} of the type {data_type} cannot be written as text"),
        },
    })
}

fn not_finite(value: f64) -> &'static str {
    match value {
        value if value.is_nan() => "'NaN'",
        value if value > 0.0 => "'Infinity'",
        _ => "'-Infinity'",
    }
}

fn decimal(value: &ScalarValue) -> Result<String> {
    match value.cast_to(&DataType::Utf8)? {
        ScalarValue::Utf8(Some(text)) => Ok(text),
        _ => plan_err!("the value {value} cannot be written as text"),
    }
}
