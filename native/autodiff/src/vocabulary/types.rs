//! Types that can vary, and the type of a derivative.

use arrow::datatypes::DataType;

/// Returns whether values of this type are real numbers that can vary: floats, also when dictionary-encoded.
pub fn is_float(data_type: &DataType) -> bool {
    matches!(value_type(data_type), DataType::Float16 | DataType::Float32 | DataType::Float64)
}

/// Returns whether a value of this type can vary with a float, so that a number converted back from it has a derivative that is not 0 by
/// the type alone.
///
/// Integers and booleans are constant between jumps. Values of any other type may hold all digits of a float: a decimal, a string, a time,
/// a list.
pub fn can_vary(data_type: &DataType) -> bool {
    match data_type {
        DataType::Null | DataType::Boolean => false,
        DataType::Dictionary(_, values) => can_vary(values),
        DataType::RunEndEncoded(_, values) => can_vary(values.data_type()),
        DataType::Struct(fields) => fields.iter().any(|field| can_vary(field.data_type())),
        DataType::Union(fields, _) => fields.iter().any(|(_, field)| can_vary(field.data_type())),
        DataType::List(field)
        | DataType::LargeList(field)
        | DataType::ListView(field)
        | DataType::LargeListView(field)
        | DataType::FixedSizeList(field, _)
        | DataType::Map(field, _) => can_vary(field.data_type()),
        plain => !plain.is_integer(),
    }
}

/// Returns the value type of a dictionary-encoded type, and any other type itself.
pub fn value_type(data_type: &DataType) -> &DataType {
    match data_type {
        DataType::Dictionary(_, values) => values,
        plain => plain,
    }
}

/// Returns Float32 if the expression and all columns are Float32, else Float64.
pub fn result_type<'a>(expression: &'a DataType, columns: impl IntoIterator<Item = &'a DataType>) -> DataType {
    let mut types = std::iter::once(expression).chain(columns);
    if types.all(|t| value_type(t) == &DataType::Float32) { DataType::Float32 } else { DataType::Float64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::datatypes::Field;
    use std::sync::Arc;

    fn dictionary(of: DataType) -> DataType {
        DataType::Dictionary(Box::new(DataType::Int32), Box::new(of))
    }

    #[test]
    fn what_can_vary_with_a_float() {
        let list = |of| DataType::List(Arc::new(Field::new("item", of, true)));
        for (data_type, float, varies) in [
            (DataType::Float32, true, true),
            (dictionary(DataType::Float64), true, true),
            (DataType::Decimal128(10, 2), false, true),
            (DataType::Utf8, false, true),
            (list(DataType::Float64), false, true),
            (list(DataType::Int32), false, false),
            (dictionary(DataType::Int8), false, false),
            (DataType::UInt64, false, false),
            (DataType::Boolean, false, false),
            (DataType::Null, false, false),
        ] {
            assert_eq!((is_float(&data_type), can_vary(&data_type)), (float, varies), "{data_type}");
        }
    }

    #[test]
    fn one_double_makes_the_derivative_double() {
        let (single, double) = (DataType::Float32, DataType::Float64);
        assert_eq!(result_type(&single, [&single, &dictionary(DataType::Float32)]), single);
        assert_eq!(result_type(&single, [&single, &double]), double);
        assert_eq!(result_type(&double, [&single]), double);
    }
}
