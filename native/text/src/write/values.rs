//! Rows that are written down.

use datafusion_common::Result;
use datafusion_expr::Values;
use std::sync::Arc;

use super::expressions::Over;
use super::names::unique_names;
use super::select::{Item, Select, indented};
use super::writer::Writer;
use crate::expr::sql;
use crate::names::quoted_if_needed;

/// VALUES, or a query for each row.
pub fn values(writer: &mut Writer, node: &Values) -> Result<Select> {
    let names = unique_names(&node.schema);
    let quoted: Vec<_> = names.iter().map(|name| quoted_if_needed(name)).collect();
    let rows = node.values.iter().map(|row| {
        let over = &mut Over::all(writer, &[]);
        let row = row.iter().map(|value| sql(value, over)).collect::<Result<Vec<_>>>()?;
        Ok(if writer.form.unites_values {
            let items = row.iter().zip(&quoted).map(|(value, name)| format!("{value} AS {name}"));
            format!("SELECT {}", items.collect::<Vec<_>>().join(", "))
        } else {
            format!("({})", row.join(", "))
        })
    });
    let rows = rows.collect::<Result<Vec<_>>>()?;
    let alias = writer.alias("rows");
    let from = if writer.form.unites_values {
        format!("(\n{}\n) AS {alias}", indented(&rows.join("\nUNION ALL\n")))
    } else {
        format!("(VALUES {}) AS {alias}({})", rows.join(", "), quoted.join(", "))
    };
    let items = names.iter().map(|name| Item::column(&alias, name)).collect();
    Ok(Select::new(Arc::clone(&node.schema), Some(from), items, "rows"))
}
