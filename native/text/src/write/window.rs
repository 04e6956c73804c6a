//! Window functions, which are further items of a SELECT.

use datafusion_common::Result;
use datafusion_expr::Window;
use std::sync::Arc;

use super::expressions::Over;
use super::select::{Item, Select, Stage};
use super::writer::Writer;
use crate::expr::sql;

/// The input with further items.
pub fn window(writer: &mut Writer, node: &Window, mut input: Select) -> Result<Select> {
    let exprs: Vec<_> = node.window_expr.iter().collect();
    if input.stage > Stage::Window || input.stage == Stage::Group || !input.can_be_read_by(&exprs, 0) {
        input = writer.relation(input);
    }
    for expr in &node.window_expr {
        let sql = sql(expr, &mut Over::one(writer, &input))?;
        input.items.push(Item { sql, name: None, is_simple: false, is_volatile: expr.is_volatile() });
    }
    Ok(Select { stage: Stage::Window, schema: Arc::clone(&node.schema), ..input })
}
