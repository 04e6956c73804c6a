//! LIMIT and OFFSET.

use datafusion_common::Result;
use datafusion_expr::Limit;

use super::expressions::Over;
use super::select::{Select, Stage};
use super::writer::Writer;
use crate::expr::sql;

/// Some rows of the input.
pub fn limit(writer: &mut Writer, node: &Limit, mut input: Select) -> Result<Select> {
    if input.stage == Stage::Limit {
        input = writer.relation(input);
    }
    let over = &mut Over::all(writer, &[]);
    input.clauses.limit = node.fetch.as_ref().map(|fetch| sql(fetch, over)).transpose()?;
    input.clauses.offset = node.skip.as_ref().map(|skip| sql(skip, over)).transpose()?;
    input.clauses.offset = input.clauses.offset.filter(|offset| offset != "0");
    input.stage = Stage::Limit;
    Ok(input)
}
