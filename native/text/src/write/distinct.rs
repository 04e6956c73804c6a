//! DISTINCT, and DISTINCT ON.

use datafusion_common::Result;
use datafusion_expr::DistinctOn;
use std::sync::Arc;

use super::expressions::{Over, item, order};
use super::select::{Clauses, Select, Stage};
use super::writer::Writer;
use crate::expr::sql;

/// The rows of the input, each once.
pub fn distinct(writer: &mut Writer, mut input: Select) -> Select {
    if input.stage >= Stage::Distinct {
        input = writer.relation(input);
    }
    input.clauses.distinct = Some("DISTINCT".to_owned());
    input.stage = Stage::Distinct;
    input
}

/// The first rows of the input by some values.
pub fn distinct_on(writer: &mut Writer, node: &DistinctOn, mut input: Select) -> Result<Select> {
    let sort = node.sort_expr.as_deref().unwrap_or_default();
    let exprs: Vec<_> = node.on_expr.iter().chain(&node.select_expr).chain(sort.iter().map(|key| &key.expr)).collect();
    let on_constants = node.on_expr.iter().any(|expr| input.is_constant(expr));
    if input.stage > Stage::Where || !input.can_be_read_by(&exprs, 1) || on_constants {
        input = writer.relation(input);
    }
    let over = &mut Over::one(writer, &input);
    let on = node.on_expr.iter().map(|expr| sql(expr, over)).collect::<Result<Vec<_>>>()?.join(", ");
    let order = order(writer, sort, &input)?;
    let items = node.select_expr.iter().map(|expr| item(writer, expr, &input)).collect::<Result<Vec<_>>>()?;
    let clauses = Clauses { distinct: Some(format!("DISTINCT ON ({on})")), order, ..input.clauses };
    Ok(Select { stage: Stage::Limit, items, schema: Arc::clone(&node.schema), clauses, ..input })
}
