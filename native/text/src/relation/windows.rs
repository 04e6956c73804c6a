//! Window functions, which are further items of a SELECT.

use datafusion_common::Result;
use datafusion_expr::Window;
use std::sync::Arc;

use super::writer::Writer;
use crate::expr::{sql, unaliased};
use crate::select::{Item, Select, Stage};

impl Writer<'_> {
    pub fn window(&mut self, node: &Window) -> Result<Select> {
        let mut input = self.select(&node.input)?;
        let exprs: Vec<_> = node.window_expr.iter().collect();
        if input.stage > Stage::Window || input.stage == Stage::Group || !input.can_be_read_by(&exprs, 0) {
            input = self.relation(input);
        }
        for expr in &node.window_expr {
            let written = sql(unaliased(expr), &mut self.over(std::slice::from_ref(&input)))?;
            input.items.push(Item { sql: written, name: None, is_simple: false, is_volatile: expr.is_volatile() });
        }
        Ok(Select { stage: Stage::Window, schema: Arc::clone(&node.schema), ..input })
    }
}
