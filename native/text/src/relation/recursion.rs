//! Recursive queries, and which common table expressions are inside of their second terms.

use datafusion_common::{Result, plan_err};
use datafusion_expr::{LogicalPlan, RecursiveQuery};
use std::sync::Arc;
use xql_relations::{SharedRelation, is_work_table};

use super::names::unique_names;
use super::writer::{Open, Table, Writer};
use crate::names::plain;
use crate::select::{Select, Stage, indented};

impl Writer<'_> {
    pub fn recursive_query(&mut self, node: &RecursiveQuery) -> Result<Select> {
        let schema = Arc::clone(node.static_term.schema());
        let columns = unique_names(&schema);
        let depth = {
            let whole = LogicalPlan::RecursiveQuery(node.clone());
            self.depth(&whole)?
        };
        let first = self.select(&node.static_term)?;
        let first = if first.stage >= Stage::Order { self.relation(first) } else { first };
        let first = first.text(&columns);
        let written = self.table_name(&plain(&node.name));
        self.open.push(Open {
            name: node.name.clone(),
            written: written.clone(),
            columns: columns.clone(),
            tables: vec![],
            reads: 0,
        });
        let shared = self.shared.len();
        let next = self.select(&node.recursive_term);
        let next = next.map(|next| if next.stage >= Stage::Order { self.relation(next) } else { next });
        let next = next.map(|next| {
            let depth = self.open.len();
            let has_tables = !self.open[depth - 1].tables.is_empty();
            let text = self.with_tables(next.text(&columns), depth);
            if has_tables { format!("(\n{}\n)", indented(&text)) } else { text }
        });
        let closed = self.open.pop();
        // Those of this term are known in it only.
        let is_known = |name: &String, writer: &Self| writer.tables.iter().any(|table| table.name == *name);
        let kept: Vec<_> = self.shared.drain(shared..).collect();
        let kept: Vec<_> = kept.into_iter().filter(|shared| is_known(&shared.name, self)).collect();
        self.shared.extend(kept);
        let next = next?;
        if let Some(closed) = closed
            && closed.reads > 1
        {
            return plan_err!(
                "the derivative reads the rows of the last iteration of {} {} times, and a recursive query of SQL may read them \
                 once. Write one step as a statement, keep its rows in a table, and repeat the statement in a loop",
                node.name,
                closed.reads
            );
        }
        let union = if node.is_distinct { "UNION" } else { "UNION ALL" };
        let table = Table { name: written.clone(), text: format!("{first}\n{union}\n{next}"), is_recursive: true };
        self.tables_at(depth).push(table);
        let mut select = self.named(&written, columns.into_iter(), schema, &node.name);
        if self.loses_columns {
            // It is true of each row, reads all columns, and no optimizer knows better, be they NOT NULL.
            let reads = select.items.iter().zip(select.schema.fields()).map(|(item, field)| {
                let is_plain = !field.is_nullable() && !field.data_type().is_nested();
                if is_plain { format!("nullif({0}, {0}) IS NULL", item.sql) } else { format!("{} IS NULL", item.sql) }
            });
            let reads: Vec<_> = reads.collect();
            select.filters.push(format!("CASE WHEN random() >= 0.0 THEN TRUE ELSE {} END", reads.join(" OR ")));
            select.stage = Stage::Where;
        }
        Ok(select)
    }

    /// How many of the open recursions a plan is inside of: up to the last one whose rows it reads.
    pub fn depth(&self, plan: &LogicalPlan) -> Result<usize> {
        for (index, open) in self.open.iter().enumerate().rev() {
            let reads =
                |node: &LogicalPlan| matches!(node, LogicalPlan::TableScan(scan) if is_work_table(scan, &open.name));
            if SharedRelation::any_node_in(plan, &reads)? {
                return Ok(index + 1);
            }
        }
        Ok(0)
    }
}
