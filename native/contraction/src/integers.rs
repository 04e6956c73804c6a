//! Keys as integers.

use arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use arrow::buffer::ScalarBuffer;
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type, UInt64Type};
use datafusion_common::Result;

/// Returns whether each key of a type corresponds to one integer.
pub fn can_convert(data_type: &DataType) -> bool {
    data_type.is_integer()
        || matches!(data_type, DataType::Boolean | DataType::Date32 | DataType::Date64 | DataType::Timestamp(..))
}

/// Converts keys to integers. Unsigned ones keep their bits.
///
/// # Errors
/// If the type has no integers.
pub fn to_integers(key: &ArrayRef) -> Result<Int64Array> {
    if let Some(key) = key.as_primitive_opt::<UInt64Type>() {
        let bits = ScalarBuffer::new(key.values().inner().clone(), 0, key.len());
        return Ok(Int64Array::new(bits, key.nulls().cloned()));
    }
    if let Some(key) = key.as_boolean_opt()
        && key.true_count() == 0
    {
        return Ok(Int64Array::new(vec![0; key.len()].into(), key.nulls().cloned()));
    }
    Ok(cast(key, &DataType::Int64)?.as_primitive::<Int64Type>().clone())
}

/// Returns the first of consecutive integers, none of them NULL. Returns `None` if they are not consecutive or empty.
pub fn consecutive_start(numbers: &Int64Array) -> Option<i64> {
    const PART: usize = 1024;
    let (values, first) = (numbers.values(), *numbers.values().first()?);
    if numbers.null_count() > 0 || first.checked_add(values.len() as i64).is_none() {
        return None;
    }
    // A chunk is checked without branches, which lets processors compare several numbers at once.
    let follows = |(part, values): (usize, &[i64])| {
        let first = first + (part * PART) as i64;
        values.iter().zip(first..).fold(0, |others, (number, next)| others | (number ^ next)) == 0
    };
    values.chunks(PART).enumerate().all(follows).then_some(first)
}
