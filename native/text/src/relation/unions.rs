//! Unions: the rows of several queries as one relation in FROM.

use datafusion_common::Result;
use datafusion_expr::Union;
use std::sync::Arc;

use super::names::unique_names;
use super::writer::Writer;
use crate::select::{Select, Stage};

impl Writer<'_> {
    pub fn union(&mut self, node: &Union) -> Result<Select> {
        let names = unique_names(&node.schema);
        let (mut parts, mut depth) = (vec![], 0);
        for input in &node.inputs {
            let mut select = self.select(input)?;
            if select.stage >= Stage::Order {
                select = self.relation(select);
            }
            depth = depth.max(select.depth);
            parts.push(select.text(&names));
        }
        let whole = Select { depth, ..Select::new(Arc::clone(&node.schema), None, vec![], "united") };
        Ok(self.derived(&parts.join("\nUNION ALL\n"), names, &whole))
    }
}
