//! Unparses LIMIT and OFFSET.

use datafusion_common::Result;
use datafusion_expr::Limit;

use super::expressions::SelectScope;
use super::select::{Select, Stage};
use super::writer::QueryWriter;
use crate::expr::to_sql;

/// Limits the input.
pub fn write_limit(writer: &mut QueryWriter, node: &Limit, mut input: Select) -> Result<Select> {
    if input.stage == Stage::Limit {
        input = writer.take_relation(input);
    }
    let over = &mut SelectScope::from_inputs(writer, &[]);
    input.clauses.limit = node.fetch.as_ref().map(|fetch| to_sql(fetch, over)).transpose()?;
    input.clauses.offset = node.skip.as_ref().map(|skip| to_sql(skip, over)).transpose()?;
    input.clauses.offset = input.clauses.offset.filter(|offset| offset != "0");
    input.stage = Stage::Limit;
    Ok(input)
}
