//! Unparses window functions as further items of a SELECT.

use datafusion_common::Result;
use datafusion_expr::Window;
use std::sync::Arc;

use super::expressions::SelectScope;
use super::select::{Item, Select, Stage};
use super::writer::QueryWriter;
use crate::expr::to_sql;

/// Adds window functions to the items of the input.
pub fn write_window(writer: &mut QueryWriter, node: &Window, mut input: Select) -> Result<Select> {
    let exprs: Vec<_> = node.window_expr.iter().collect();
    if input.stage > Stage::Window || input.stage == Stage::Group || !input.can_inline(&exprs, 0) {
        input = writer.take_relation(input);
    }
    for expr in &node.window_expr {
        let sql = to_sql(expr, &mut SelectScope::from_input(writer, &input))?;
        input.items.push(Item { sql, name: None, is_simple: false, is_volatile: expr.is_volatile() });
    }
    Ok(Select { stage: Stage::Window, schema: Arc::clone(&node.schema), ..input })
}
