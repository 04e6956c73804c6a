//! Shared relations, which are common table expressions.

use datafusion_common::{Result, plan_err};
use std::sync::Arc;
use xql_relations::SharedRelation;

use super::names::unique;
use super::order::{check_order, distinguishing, volatile_in};
use super::writer::{Shared, Table, Writer};
use crate::derive::{simplified, tidied};
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
        if let Some(volatile) = volatile_in(&plan)? {
            return plan_err!(
                "the derivative reads a relation several times that {volatile} makes another one each time: \
                 keep its rows in a table first"
            );
        }
        self.inside_shared += 1;
        let select = self.select(&plan);
        self.inside_shared -= 1;
        let select = select?;
        let mut columns: Vec<String> = unique(relation.columns());
        let text = if relation.is_numbered() {
            let select = self.relation(select);
            let row = columns.pop().unwrap_or_default();
            self.numbered(&select, &distinguishing(&plan), &columns, &row)?
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

    /// Rows with numbers, which are the same wherever the text is read: rows that are equal in all columns are one as good as the
    /// other.
    pub fn numbered(&mut self, select: &Select, by: &[usize], columns: &[String], row: &str) -> Result<String> {
        let mut keys = vec![];
        for index in by {
            let (item, field) = (&select.items[*index], select.schema.field(*index));
            check_order(field)?;
            keys.push((field.data_type().is_floating(), item.sql.clone()));
        }
        // What is computed from floats may differ in its last digit the next time.
        keys.sort_by_key(|(is_float, _)| *is_float);
        let keys: Vec<_> = keys.into_iter().map(|(_, key)| key).collect();
        let over = if keys.is_empty() { String::new() } else { format!("ORDER BY {}", keys.join(", ")) };
        let number = format!("row_number() OVER ({over})");
        let mut select = select.clone();
        select.items.push(Item { sql: number, name: None, is_simple: false, is_volatile: false });
        Ok(select.text(&[columns, &[row.to_owned()]].concat()))
    }
}
