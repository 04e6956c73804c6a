//! Validation of types.

use arrow::datatypes::{
    DataType, Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type, TimeUnit,
    validate_decimal_precision_and_scale,
};
use datafusion_common::Result;

use crate::wire::error::malformed;

/// Refuses an invalid type.
pub(crate) fn check_type(data_type: &DataType) -> Result<()> {
    if is_type(data_type) { Ok(()) } else { Err(malformed(format_args!("there is no type {data_type}"))) }
}

/// Returns whether arrays can have a type: a message may give one any width, precision or part.
pub(crate) fn is_type(data_type: &DataType) -> bool {
    match data_type {
        DataType::Decimal32(precision, scale) => {
            validate_decimal_precision_and_scale::<Decimal32Type>(*precision, *scale).is_ok()
        }
        DataType::Decimal64(precision, scale) => {
            validate_decimal_precision_and_scale::<Decimal64Type>(*precision, *scale).is_ok()
        }
        DataType::Decimal128(precision, scale) => {
            validate_decimal_precision_and_scale::<Decimal128Type>(*precision, *scale).is_ok()
        }
        DataType::Decimal256(precision, scale) => {
            validate_decimal_precision_and_scale::<Decimal256Type>(*precision, *scale).is_ok()
        }
        DataType::FixedSizeBinary(width) => *width >= 0,
        DataType::Time32(unit) => matches!(unit, TimeUnit::Second | TimeUnit::Millisecond),
        DataType::Time64(unit) => matches!(unit, TimeUnit::Microsecond | TimeUnit::Nanosecond),
        DataType::FixedSizeList(field, length) => *length >= 0 && is_type(field.data_type()),
        DataType::List(field)
        | DataType::LargeList(field)
        | DataType::ListView(field)
        | DataType::LargeListView(field) => is_type(field.data_type()),
        DataType::Struct(fields) => fields.iter().all(|field| is_type(field.data_type())),
        DataType::Union(fields, _) => !fields.is_empty() && fields.iter().all(|(_, field)| is_type(field.data_type())),
        DataType::Dictionary(key, value) => key.is_dictionary_key_type() && is_type(value),
        DataType::Map(entries, _) => {
            matches!(entries.data_type(), DataType::Struct(fields) if fields.len() == 2) && is_type(entries.data_type())
        }
        DataType::RunEndEncoded(ends, values) => ends.data_type().is_run_ends_type() && is_type(values.data_type()),
        _ => true,
    }
}
