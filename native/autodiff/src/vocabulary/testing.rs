//! Columns for unit tests.

use arrow::datatypes::{DataType, Field, Schema};
use datafusion_common::{DFSchema, Result};

/// Returns a schema with the columns `x` and `y`, which are never NULL, `n`, which may be, and the integer `i`.
pub fn columns() -> Result<DFSchema> {
    let fields = vec![
        Field::new("x", DataType::Float64, false),
        Field::new("y", DataType::Float64, false),
        Field::new("n", DataType::Float64, true),
        Field::new("i", DataType::Int64, false),
    ];
    DFSchema::try_from(Schema::new(fields))
}
