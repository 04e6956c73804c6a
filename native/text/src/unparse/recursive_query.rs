//! Unparses recursive queries as recursive CTEs.

use datafusion_common::{Result, plan_err};
use datafusion_expr::{LogicalPlan, RecursiveQuery};
use std::sync::Arc;

use super::names::unique_names;
use super::select::{Select, Stage, indent};
use super::writer::{CommonTable, OpenRecursion, QueryWriter};
use crate::names::plain_name;

/// Writes the rows of all iterations.
pub fn write_recursive_query(writer: &mut QueryWriter, node: &RecursiveQuery) -> Result<Select> {
    let schema = Arc::clone(node.static_term.schema());
    let columns = unique_names(&schema);
    let depth = writer.depth_of(&LogicalPlan::RecursiveQuery(node.clone()))?;
    let first = writer.with_depth(depth, |writer| write_term(writer, &node.static_term))?.to_sql(&columns);
    let written = writer.fresh_table_name(&plain_name(&node.name));
    let next = write_recursive_term(writer, node, &written, &columns)?;
    let union = if node.is_distinct { "UNION" } else { "UNION ALL" };
    let table = CommonTable { name: written.clone(), text: format!("{first}\n{union}\n{next}"), is_recursive: true };
    writer.tables_at(depth).push(table);
    let select = writer.scan_table(&written, columns, schema, &node.name);
    if !writer.loses_columns {
        return Ok(select);
    }
    // The condition is true for each row and reads all columns, also those that are NOT NULL, and no optimizer can prove that it is true.
    let reads = select.items.iter().zip(select.schema.fields()).map(|(item, field)| {
        let is_plain = !field.is_nullable() && !field.data_type().is_nested();
        if is_plain { format!("nullif({0}, {0}) IS NULL", item.sql) } else { format!("{} IS NULL", item.sql) }
    });
    let reads = reads.collect::<Vec<_>>().join(" OR ");
    Ok(select.with_filter(format!("CASE WHEN random() >= 0.0 THEN TRUE ELSE {reads} END")))
}

/// Writes a term. It has no order of its own.
fn write_term(writer: &mut QueryWriter, plan: &LogicalPlan) -> Result<Select> {
    let select = writer.select(plan)?;
    Ok(if select.stage >= Stage::Order { writer.take_relation(select) } else { select })
}

/// Writes the recursive term, with the CTEs that read the work table.
fn write_recursive_term(
    writer: &mut QueryWriter,
    node: &RecursiveQuery,
    written: &str,
    columns: &[String],
) -> Result<String> {
    let (name, sql_name) = (node.name.clone(), written.to_owned());
    writer.open_recursions.push(OpenRecursion { name, sql_name, columns: columns.to_vec(), tables: vec![], reads: 0 });
    let depth = writer.open_recursions.len();
    let shared = writer.shared.len();
    let next = writer.with_depth(depth, |writer| write_term(writer, &node.recursive_term)).map(|next| {
        let has_tables = !writer.open_recursions[depth - 1].tables.is_empty();
        let text = writer.with_tables(next.to_sql(columns), depth);
        if has_tables { format!("(\n{}\n)", indent(&text)) } else { text }
    });
    let closed = writer.open_recursions.pop();
    // The CTEs of this term are not visible outside.
    let of_term = writer.shared.split_off(shared);
    let outer = || writer.open_recursions.iter().flat_map(|open| &open.tables).chain(&writer.tables);
    let is_known = |name: &str| outer().any(|table| table.name == name);
    let still_known: Vec<_> = of_term.into_iter().filter(|shared| is_known(&shared.name)).collect();
    writer.shared.extend(still_known);
    let next = next?;
    match closed {
        Some(closed) if closed.reads > 1 && !writer.options.multi_read_recursion => plan_err!(
            "the derivative reads the rows of the last iteration of {} {} times, and but for DuckDB a recursive query may read them once. \
             Write one step as a statement, keep its rows in a table, and repeat the statement in a loop",
            node.name,
            closed.reads
        ),
        _ => Ok(next),
    }
}
