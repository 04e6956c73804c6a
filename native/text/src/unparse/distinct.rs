//! Unparses DISTINCT and DISTINCT ON.

use datafusion_common::Result;
use datafusion_expr::DistinctOn;
use std::sync::Arc;

use super::expressions::{SelectScope, write_item, write_order};
use super::select::{Clauses, Select, Stage};
use super::writer::QueryWriter;
use crate::expr::to_sql;

/// Writes the distinct rows of the input.
pub fn write_distinct(writer: &mut QueryWriter, mut input: Select) -> Select {
    if input.stage >= Stage::Distinct {
        input = writer.take_relation(input);
    }
    input.clauses.distinct = Some("DISTINCT".to_owned());
    input.stage = Stage::Distinct;
    input
}

/// Writes the first row of the input for each key.
pub fn write_distinct_on(writer: &mut QueryWriter, node: &DistinctOn, mut input: Select) -> Result<Select> {
    let sort = node.sort_expr.as_deref().unwrap_or_default();
    let exprs: Vec<_> = node.on_expr.iter().chain(&node.select_expr).chain(sort.iter().map(|key| &key.expr)).collect();
    let on_constants = node.on_expr.iter().any(|expr| input.is_constant(expr));
    if input.stage > Stage::Where || !input.can_inline(&exprs, 1) || on_constants {
        input = writer.take_relation(input);
    }
    let over = &mut SelectScope::from_input(writer, &input);
    let on = node.on_expr.iter().map(|expr| to_sql(expr, over)).collect::<Result<Vec<_>>>()?.join(", ");
    let order = write_order(writer, sort, &input)?;
    let items = node.select_expr.iter().map(|expr| write_item(writer, expr, &input)).collect::<Result<Vec<_>>>()?;
    let clauses = Clauses { distinct: Some(format!("DISTINCT ON ({on})")), order, ..input.clauses };
    Ok(Select { stage: Stage::Limit, items, schema: Arc::clone(&node.schema), clauses, ..input })
}
