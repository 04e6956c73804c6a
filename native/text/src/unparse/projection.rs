//! Unparses projections: the items of a `SELECT`.

use datafusion_common::Result;
use datafusion_expr::Projection;
use std::sync::Arc;

use super::expressions::write_item;
use super::select::{Select, Stage};
use super::writer::QueryWriter;

/// Replaces the items of the input.
pub fn write_projection(writer: &mut QueryWriter, node: &Projection, mut input: Select) -> Result<Select> {
    let exprs: Vec<_> = node.expr.iter().collect();
    if input.stage == Stage::Distinct || !input.can_inline(&exprs, 1) {
        input = writer.take_relation(input);
    }
    let items = node.expr.iter().map(|expr| write_item(writer, expr, &input)).collect::<Result<Vec<_>>>()?;
    Ok(Select { items, schema: Arc::clone(&node.schema), ..input })
}
