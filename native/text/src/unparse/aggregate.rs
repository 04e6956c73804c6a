//! Unparses aggregations: GROUP BY with keys or grouping sets.

use datafusion_common::Result;
use datafusion_expr::utils::grouping_set_to_exprlist;
use datafusion_expr::{Aggregate, Expr};
use std::sync::Arc;

use super::expressions::{SelectScope, write_item};
use super::grouping_sets::DuplicateSets;
use super::select::{Clauses, Item, Select, Stage};
use super::writer::QueryWriter;
use crate::expr::{cast_sql, is_constant, to_sql, type_sql};

/// Writes the groups of the input.
pub fn write_aggregate(writer: &mut QueryWriter, node: &Aggregate, mut input: Select) -> Result<Select> {
    let exprs: Vec<_> = node.group_expr.iter().chain(&node.aggr_expr).collect();
    if input.stage > Stage::Where || !input.can_inline(&exprs, 0) {
        input = writer.take_relation(input);
    }
    let sets = match node.group_expr.as_slice() {
        [Expr::GroupingSet(sets)] => Some(sets),
        _ => None,
    };
    let duplicates = sets.map(DuplicateSets::from_sets).unwrap_or_default();
    let markers = duplicates.add_markers(writer, &mut input);
    let mut groups = vec![];
    let mut items = vec![];
    for key in grouping_set_to_exprlist(&node.group_expr)? {
        items.push(write_item(writer, key, &input)?);
    }
    if let Some(sets) = sets {
        groups.push(duplicates.to_sql(sets, &markers, &mut SelectScope::from_input(writer, &input))?);
        let kind = type_sql(node.schema.field(items.len()).data_type())?;
        let sql = format!("CAST({} AS {kind})", DuplicateSets::grouping_id_sql(&items, &markers));
        items.push(Item { sql, name: None, is_simple: true, is_volatile: false });
    } else {
        for (expr, field) in node.group_expr.iter().zip(node.schema.fields()) {
            let key = to_sql(expr, &mut SelectScope::from_input(writer, &input))?;
            groups.push(if is_constant(&key) { cast_sql(&key, field.data_type()) } else { key });
        }
    }
    for expr in &node.aggr_expr {
        let sql = to_sql(expr, &mut SelectScope::from_input(writer, &input))?;
        items.push(Item { sql, name: None, is_simple: true, is_volatile: expr.is_volatile() });
    }
    let clauses = Clauses { groups: Some(groups), ..input.clauses };
    Ok(Select { stage: Stage::Group, items, schema: Arc::clone(&node.schema), clauses, ..input })
}
