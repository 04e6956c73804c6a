//! Shared relations, which are common table expressions. A host computes these anew wherever they are read, and has to find the same
//! rows each time.

use datafusion_common::Result;
use datafusion_expr::{Expr, LogicalPlan};
use std::sync::Arc;
use xql_relations::SharedRelation;
use xql_relations::anew::{check_repeatable, total_order, totally_ordered};

use super::names::unique;
use super::writer::{Shared, Table, Writer};
use crate::derive::{loses_columns, simplified, tidied};
use crate::names::plain;
use crate::select::{Item, Select};

impl Writer<'_> {
    /// The common table expression of a shared relation, and the names of its columns.
    pub fn shared(&mut self, relation: &Arc<SharedRelation>) -> Result<(String, Vec<String>)> {
        if let Some(known) = self.shared.iter().find(|known| Arc::ptr_eq(&known.relation, relation)) {
            let known = known.clone();
            for (open, reads) in self.open.iter_mut().zip(&known.reads) {
                open.reads += reads;
            }
            return Ok((known.name, known.columns));
        }
        let before: Vec<_> = self.open.iter().map(|open| open.reads).collect();
        let plan = tidied(simplified(relation.plan().clone(), self.options)?, self.options)?;
        let depth = self.depth(&plan)?;
        check_repeatable(&plan)?;
        self.loses_columns |= loses_columns(&plan);
        self.inside_shared += 1;
        let select = self.select(&plan);
        self.inside_shared -= 1;
        let select = select?;
        let mut columns: Vec<String> = unique(relation.columns());
        let text = if relation.is_numbered() {
            let select = self.relation(select);
            let row = columns.pop().unwrap_or_default();
            numbered(&select, &total_order(&plan)?, &columns, &row)
        } else {
            select.text(&columns)
        };
        let columns = if relation.is_numbered() { unique(relation.columns()) } else { columns };
        let name = self.table_name(&plain(relation.name()));
        let table = Table { name: name.clone(), text, is_recursive: false };
        match depth.checked_sub(1) {
            None => self.tables.push(table),
            Some(index) => self.open[index].tables.push(table),
        }
        let reads = self.open.iter().zip(before).map(|(open, before)| open.reads - before).collect();
        let relation = Arc::clone(relation);
        self.shared.push(Shared { relation, name: name.clone(), columns: columns.clone(), reads });
        Ok((name, columns))
    }

    /// In a shared relation, an expression whose functions depend on the order of rows in one order of them only.
    pub fn in_one_order(&self, expr: &Expr, input: &LogicalPlan) -> Result<Expr> {
        let expr = expr.clone();
        if self.inside_shared == 0 { Ok(expr) } else { Ok(totally_ordered(expr, input)?.data) }
    }
}

/// Rows with numbers, which are the same wherever the text is read: rows that are equal in all columns are one as good as the
/// other.
fn numbered(select: &Select, by: &[usize], columns: &[String], row: &str) -> String {
    let keys: Vec<_> = by.iter().map(|index| select.items[*index].sql.as_str()).collect();
    let over = if keys.is_empty() { String::new() } else { format!("ORDER BY {}", keys.join(", ")) };
    let number = format!("row_number() OVER ({over})");
    let mut select = select.clone();
    select.items.push(Item { sql: number, name: None, is_simple: false, is_volatile: false });
    select.text(&[columns, &[row.to_owned()]].concat())
}
