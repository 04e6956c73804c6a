//! Unparses unnesting of lists.

use datafusion_common::{Result, plan_err};
use datafusion_expr::Unnest;
use std::sync::Arc;
use xql_relations::preserves_nulls;

use super::select::{Item, Select, Stage};
use super::writer::QueryWriter;

/// Writes a row for each element of lists of the input.
pub fn write_unnest(writer: &mut QueryWriter, node: &Unnest, input: Select) -> Result<Select> {
    if !node.struct_type_columns.is_empty() {
        return plan_err!(
            "unnest of a struct cannot be written as text beside a derivative that sees through relations: name its fields"
        );
    }
    let input = writer.take_relation(input);
    let mut items = vec![];
    for (index, from) in node.dependency_indices.iter().enumerate() {
        let item = input.items[*from].clone();
        let (qualifier, field) = node.schema.qualified_field(index);
        let list = node.list_type_columns.iter().find(|(column, list)| {
            let output = &list.output_column;
            column == from && output.relation.as_ref() == qualifier && output.name == *field.name()
        });
        let Some((_, list)) = list else {
            items.push(item);
            continue;
        };
        if preserves_nulls(&node.options) {
            return plan_err!("unnest keeps the rows in which {} is NULL, and SQL text cannot say that", field.name());
        }
        let sql = format!("{}{}{}", "unnest(".repeat(list.depth), item.sql, ")".repeat(list.depth));
        items.push(Item { sql, name: None, is_simple: false, is_volatile: false });
    }
    // As with DISTINCT, later clauses see other rows than the items read.
    Ok(Select { stage: Stage::Distinct, items, schema: Arc::clone(&node.schema), ..input })
}
