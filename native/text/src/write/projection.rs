//! The items of a `SELECT`.

use datafusion_common::Result;
use datafusion_expr::Projection;
use std::sync::Arc;

use super::expressions::item;
use super::select::{Select, Stage};
use super::writer::Writer;

/// The input with other items.
pub fn projection(writer: &mut Writer, node: &Projection, mut input: Select) -> Result<Select> {
    let exprs: Vec<_> = node.expr.iter().collect();
    if input.stage == Stage::Distinct || !input.can_be_read_by(&exprs, 1) {
        input = writer.relation(input);
    }
    let items = node.expr.iter().map(|expr| item(writer, expr, &input)).collect::<Result<Vec<_>>>()?;
    Ok(Select { items, schema: Arc::clone(&node.schema), ..input })
}
