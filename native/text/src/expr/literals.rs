//! Values and types as text.

use arrow::datatypes::DataType;
use datafusion_common::{Result, ScalarValue, plan_err};
use datafusion_expr::expr::Cast;
use datafusion_expr::{Expr, lit};
use datafusion_sql::unparser::Unparser;
use sqlparser::ast;

use super::precedence::{Precedence, SqlText};

/// Returns the name of a type in SQL.
pub fn type_sql(data_type: &DataType) -> Result<String> {
    match data_type {
        DataType::Utf8 | DataType::Utf8View => return Ok("VARCHAR".to_owned()),
        DataType::Binary => return Ok("BYTEA".to_owned()),
        DataType::Float16
        | DataType::LargeUtf8
        | DataType::LargeBinary
        | DataType::BinaryView
        | DataType::FixedSizeBinary(_)
        | DataType::Dictionary(..) => return plan_err!("the type {data_type} has no name in SQL"),
        _ => {}
    }
    // The unparser names the types of numbers and times.
    let null = Expr::Cast(Cast::new(Box::new(lit(ScalarValue::Null)), data_type.clone()));
    match Unparser::default().expr_to_sql(&null)? {
        ast::Expr::Cast { data_type, .. } => Ok(data_type.to_string()),
        _ => plan_err!("the type {data_type} has no name in SQL"),
    }
}

/// Casts a text to a type, by `arrow_cast` if the type has no name in SQL.
pub fn cast_sql(sql: &str, data_type: &DataType) -> String {
    match type_sql(data_type) {
        Ok(name) => format!("CAST({sql} AS {name})"),
        Err(_) => format!("arrow_cast({sql}, '{data_type}')"),
    }
}

/// Returns whether a text is only a constant. In GROUP BY and ORDER BY a number would be taken for the position of a column.
pub fn is_constant(sql: &str) -> bool {
    let inner = sql.trim_start_matches('(').trim_end_matches(')');
    let unsigned = inner.strip_prefix('-').unwrap_or(inner);
    let is_number = unsigned.starts_with(|first: char| first.is_ascii_digit()) && unsigned.parse::<f64>().is_ok();
    let text = inner.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''));
    // A source fragment without parts.
    let is_fragment = sql.starts_with("\"∂ ") && sql.ends_with("\"()");
    is_number
        || is_fragment
        || text.is_some_and(|text| !text.replace("''", "").contains('\''))
        || matches!(inner, "TRUE" | "FALSE" | "NULL")
}

/// Writes a value with its type.
pub fn literal_sql(value: &ScalarValue) -> Result<SqlText> {
    let number =
        |sql: String| SqlText::new(if sql.starts_with('-') { Precedence::Sign } else { Precedence::Atom }, sql);
    let typed = |sql: &str| SqlText::atom(cast_sql(sql, &value.data_type()));
    if value.is_null() {
        return Ok(if value.data_type().is_null() { SqlText::atom("NULL") } else { typed("NULL") });
    }
    Ok(match value {
        ScalarValue::Boolean(Some(value)) => SqlText::atom(if *value { "TRUE" } else { "FALSE" }),
        ScalarValue::Int64(Some(value)) => number(value.to_string()),
        ScalarValue::Float64(Some(value)) if value.is_finite() => number(format!("{value:?}")),
        ScalarValue::Float64(Some(value)) => typed(special_float(*value)),
        ScalarValue::Float32(Some(value)) if value.is_finite() => typed(&format!("{value:?}")),
        ScalarValue::Float32(Some(value)) => typed(special_float((*value).into())),
        ScalarValue::Float16(Some(value)) if value.is_finite() => typed(&format!("{value:?}")),
        ScalarValue::Dictionary(_, value) => typed(&literal_sql(value)?.sql),
        ScalarValue::Binary(Some(bytes)) => SqlText::atom(hex_sql(bytes)),
        ScalarValue::LargeBinary(Some(bytes))
        | ScalarValue::BinaryView(Some(bytes))
        | ScalarValue::FixedSizeBinary(_, Some(bytes)) => typed(&hex_sql(bytes)),
        ScalarValue::Utf8(Some(text)) | ScalarValue::Utf8View(Some(text)) | ScalarValue::LargeUtf8(Some(text)) => {
            SqlText::atom(format!("'{}'", text.replace('\'', "''")))
        }
        ScalarValue::Int8(_)
        | ScalarValue::Int16(_)
        | ScalarValue::Int32(_)
        | ScalarValue::UInt8(_)
        | ScalarValue::UInt16(_)
        | ScalarValue::UInt32(_)
        | ScalarValue::UInt64(_) => typed(&value.to_string()),
        ScalarValue::Decimal32(..)
        | ScalarValue::Decimal64(..)
        | ScalarValue::Decimal128(..)
        | ScalarValue::Decimal256(..) => typed(&format!("'{}'", decimal_text(value)?)),
        // The unparser writes dates, times and intervals.
        other => match other.data_type() {
            data_type if data_type.is_temporal() => {
                SqlText::atom(Unparser::default().expr_to_sql(&lit(other.clone()))?.to_string())
            }
            data_type => return plan_err!("the value {other} of the type {data_type} cannot be written as text"),
        },
    })
}

fn hex_sql(bytes: &[u8]) -> String {
    let digits: String = bytes.iter().map(|byte| format!("{byte:02X}")).collect();
    format!("X'{digits}'")
}

fn special_float(value: f64) -> &'static str {
    match value {
        value if value.is_nan() => "'NaN'",
        value if value > 0.0 => "'Infinity'",
        _ => "'-Infinity'",
    }
}

fn decimal_text(value: &ScalarValue) -> Result<String> {
    match value.cast_to(&DataType::Utf8)? {
        ScalarValue::Utf8(Some(text)) => Ok(text),
        _ => plan_err!("the value {value} cannot be written as text"),
    }
}
