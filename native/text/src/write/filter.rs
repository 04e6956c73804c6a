//! Conditions: WHERE, and HAVING behind a grouping.

use datafusion_common::Result;
use datafusion_expr::Filter;

use super::expressions::Over;
use super::select::{Select, Stage};
use super::writer::Writer;
use crate::expr::sql;

/// The input with one more condition.
pub fn filter(writer: &mut Writer, node: &Filter, mut input: Select) -> Result<Select> {
    if input.stage > Stage::Group || !input.can_be_read_by(&[&node.predicate], 1) {
        input = writer.relation(input);
    }
    let condition = sql(&node.predicate, &mut Over::one(writer, &input))?;
    if input.stage < Stage::Group {
        return Ok(input.filtered(condition));
    }
    input.clauses.having.push(condition);
    Ok(input)
}
