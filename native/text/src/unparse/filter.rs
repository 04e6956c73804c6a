//! Unparses conditions: WHERE, or HAVING after GROUP BY.

use datafusion_common::Result;
use datafusion_expr::Filter;

use super::expressions::SelectScope;
use super::select::{Select, Stage};
use super::writer::QueryWriter;
use crate::expr::to_sql;

/// Adds a condition to the input.
pub fn write_filter(writer: &mut QueryWriter, node: &Filter, mut input: Select) -> Result<Select> {
    if input.stage > Stage::Group || !input.can_inline(&[&node.predicate], 1) {
        input = writer.take_relation(input);
    }
    let condition = to_sql(&node.predicate, &mut SelectScope::from_input(writer, &input))?;
    if input.stage < Stage::Group {
        return Ok(input.with_filter(condition));
    }
    input.clauses.having.push(condition);
    Ok(input)
}
