//! Unparses unions as derived tables.

use datafusion_common::Result;
use datafusion_expr::Union;
use std::sync::Arc;

use super::names::unique_names;
use super::select::{FromClause, Select, Stage};
use super::writer::QueryWriter;

/// Writes the rows of all inputs.
pub fn write_union(writer: &mut QueryWriter, node: &Union) -> Result<Select> {
    let names = unique_names(&node.schema);
    let (mut parts, mut depth) = (vec![], 0);
    for input in &node.inputs {
        let mut select = writer.select(input)?;
        if select.stage >= Stage::Order {
            select = writer.take_relation(select);
        }
        depth = depth.max(select.source.depth);
        parts.push(select.to_sql(&names));
    }
    let whole = Select::new(Arc::clone(&node.schema), None, vec![], "united");
    let whole = Select { source: FromClause { depth, ..whole.source }, ..whole };
    Ok(writer.derived_table(&parts.join("\nUNION ALL\n"), names, &whole))
}
