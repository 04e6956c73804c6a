//! Unions: the rows of several queries as one relation in FROM.

use datafusion_common::Result;
use datafusion_expr::Union;
use std::sync::Arc;

use super::names::unique_names;
use super::select::{FromClause, Select, Stage};
use super::writer::Writer;

/// The rows of all inputs.
pub fn union(writer: &mut Writer, node: &Union) -> Result<Select> {
    let names = unique_names(&node.schema);
    let (mut parts, mut depth) = (vec![], 0);
    for input in &node.inputs {
        let mut select = writer.select(input)?;
        if select.stage >= Stage::Order {
            select = writer.relation(select);
        }
        depth = depth.max(select.source.depth);
        parts.push(select.text(&names));
    }
    let whole = Select::new(Arc::clone(&node.schema), None, vec![], "united");
    let whole = Select { source: FromClause { depth, ..whole.source }, ..whole };
    Ok(writer.derived(&parts.join("\nUNION ALL\n"), names, &whole))
}
