//! Unparses relations without columns.

use datafusion_expr::EmptyRelation;
use std::sync::Arc;

use super::select::{Item, Select};
use crate::expr::cast_sql;

/// Writes a `SELECT` without FROM.
pub fn write_empty_relation(node: &EmptyRelation) -> Select {
    let items = node.schema.fields().iter().map(|field| {
        let sql = cast_sql("NULL", field.data_type());
        Item { sql, name: None, is_simple: true, is_volatile: false }
    });
    let select = Select::new(Arc::clone(&node.schema), None, items.collect(), "nothing");
    if node.produce_one_row { select } else { select.with_filter("FALSE".to_owned()) }
}
