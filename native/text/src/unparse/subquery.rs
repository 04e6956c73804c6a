//! Unparses lateral subqueries in FROM.

use datafusion_common::Result;
use datafusion_expr::Subquery;

use super::names::unique_names;
use super::select::Select;
use super::writer::QueryWriter;

/// Writes the input, after LATERAL if it reads outer columns.
pub fn write_subquery(writer: &mut QueryWriter, node: &Subquery, input: Select) -> Result<Select> {
    if node.outer_ref_columns.is_empty() {
        return Ok(input);
    }
    let names = unique_names(&input.schema);
    let mut written = writer.derived_table(&input.to_sql(&names), names, &input);
    written.source.sql = written.source.sql.map(|from| format!("LATERAL {from}"));
    Ok(written)
}
