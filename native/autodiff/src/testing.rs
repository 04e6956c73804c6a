//! What unit tests share: columns, and nodes as SQL.

use arrow::datatypes::{DataType, Field, Schema};
use datafusion_common::{DFSchema, Result};

use crate::graph::{Graph, NodeId, export};
use crate::vocabulary::messages::abbreviated;

/// The columns `x` and `y`, which are never NULL, `n`, which may be, and the whole number `i`.
pub fn columns() -> Result<DFSchema> {
    let fields = vec![
        Field::new("x", DataType::Float64, false),
        Field::new("y", DataType::Float64, false),
        Field::new("n", DataType::Float64, true),
        Field::new("i", DataType::Int64, false),
    ];
    DFSchema::try_from(Schema::new(fields))
}

/// A node in SQL.
pub fn shown(graph: &Graph, id: NodeId) -> Result<String> {
    Ok(abbreviated(&export(graph, id)?))
}
