//! Which types can vary, and which type a derivative has.

use arrow::datatypes::DataType;

/// Whether values of this type are real numbers that can vary: floats, also when dictionary-encoded.
pub fn is_float(data_type: &DataType) -> bool {
    matches!(decoded(data_type), DataType::Float16 | DataType::Float32 | DataType::Float64)
}

/// Whether a value of this type can vary with a float: a float, or anything that can hold or approximate one. A time does:
/// `to_timestamp(x)` has the digits of `x`, and `date_part('epoch', ...)` gives them back.
pub fn carries_floats(data_type: &DataType) -> bool {
    match data_type {
        DataType::Struct(fields) => fields.iter().any(|field| carries_floats(field.data_type())),
        DataType::Union(fields, _) => fields.iter().any(|(_, field)| carries_floats(field.data_type())),
        DataType::List(field)
        | DataType::LargeList(field)
        | DataType::ListView(field)
        | DataType::LargeListView(field)
        | DataType::FixedSizeList(field, _)
        | DataType::Map(field, _) => carries_floats(field.data_type()),
        other => is_float(other) || other.is_decimal() || other.is_nested() || other.is_temporal(),
    }
}

/// The type of the values, for a dictionary-encoded type; the type itself for others.
pub fn decoded(data_type: &DataType) -> &DataType {
    match data_type {
        DataType::Dictionary(_, values) => values,
        plain => plain,
    }
}

/// Float32 if the expression and all columns are Float32, else Float64.
pub fn result_type<'a>(expression: &'a DataType, columns: impl IntoIterator<Item = &'a DataType>) -> DataType {
    let mut types = std::iter::once(expression).chain(columns);
    if types.all(|t| decoded(t) == &DataType::Float32) { DataType::Float32 } else { DataType::Float64 }
}
