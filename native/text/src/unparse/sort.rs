//! Unparses ORDER BY.

use datafusion_common::Result;
use datafusion_expr::Sort;

use super::expressions::write_order;
use super::select::{Select, Stage};
use super::writer::QueryWriter;

/// Orders the input.
pub fn write_sort(writer: &mut QueryWriter, node: &Sort, mut input: Select) -> Result<Select> {
    let keys: Vec<_> = node.expr.iter().map(|key| &key.expr).collect();
    // DataFusion 54 loses rows of a LIMIT with an OFFSET that are ordered once more, unless they are limited once more:
    // SELECT * FROM (SELECT * FROM t ORDER BY id LIMIT 5 OFFSET 1) AS q ORDER BY id
    let rows = input.clauses.offset.as_ref().and(input.clauses.limit.clone());
    if input.stage >= Stage::Distinct || !input.can_inline(&keys, 1) {
        input = writer.take_relation(input);
    }
    input.clauses.order = write_order(writer, &node.expr, &input)?;
    input.stage = Stage::Order;
    if let Some(limit) = node.fetch.map(|fetch| fetch.to_string()).or(rows) {
        input.clauses.limit = Some(limit);
        input.stage = Stage::Limit;
    }
    Ok(input)
}
