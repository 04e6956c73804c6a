//! Unparses VALUES.

use datafusion_common::Result;
use datafusion_expr::Values;
use std::sync::Arc;

use super::expressions::SelectScope;
use super::names::unique_names;
use super::select::{Item, Select, indent};
use super::writer::QueryWriter;
use crate::expr::to_sql;
use crate::names::quote_if_needed;

/// Writes VALUES, or a union of a query for each row.
pub fn write_values(writer: &mut QueryWriter, node: &Values) -> Result<Select> {
    let names = unique_names(&node.schema);
    let quoted: Vec<_> = names.iter().map(|name| quote_if_needed(name)).collect();
    let rows = node.values.iter().map(|row| {
        let over = &mut SelectScope::from_inputs(writer, &[]);
        let row = row.iter().map(|value| to_sql(value, over)).collect::<Result<Vec<_>>>()?;
        Ok(if writer.options.values_as_union {
            let items = row.iter().zip(&quoted).map(|(value, name)| format!("{value} AS {name}"));
            format!("SELECT {}", items.collect::<Vec<_>>().join(", "))
        } else {
            format!("({})", row.join(", "))
        })
    });
    let rows = rows.collect::<Result<Vec<_>>>()?;
    let alias = writer.fresh_alias("rows");
    let from = if writer.options.values_as_union {
        format!("(\n{}\n) AS {alias}", indent(&rows.join("\nUNION ALL\n")))
    } else {
        format!("(VALUES {}) AS {alias}({})", rows.join(", "), quoted.join(", "))
    };
    let items = names.iter().map(|name| Item::column(&alias, name)).collect();
    Ok(Select::new(Arc::clone(&node.schema), Some(from), items, "rows"))
}
