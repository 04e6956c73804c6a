//! Queries in FROM that read columns of what is on the left of them.

use datafusion_common::Result;
use datafusion_expr::Subquery;

use super::names::unique_names;
use super::select::Select;
use super::writer::QueryWriter;

/// The input, behind LATERAL if it reads such columns.
pub fn write_subquery(writer: &mut QueryWriter, node: &Subquery, input: Select) -> Result<Select> {
    if node.outer_ref_columns.is_empty() {
        return Ok(input);
    }
    let names = unique_names(&input.schema);
    let mut written = writer.derived_table(&input.to_sql(&names), names, &input);
    written.source.sql = written.source.sql.map(|from| format!("LATERAL {from}"));
    Ok(written)
}
