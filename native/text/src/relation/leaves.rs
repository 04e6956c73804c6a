//! What a plan begins with: tables, common table expressions, and rows that are written down.

use datafusion_catalog::cte_worktable::CteWorkTable;
use datafusion_catalog::default_table_source::source_as_provider;
use datafusion_common::{Result, TableReference, plan_datafusion_err};
use datafusion_expr::{EmptyRelation, LogicalPlan, SubqueryAlias, TableScan, Values};
use std::sync::Arc;
use xql_relations::SharedRelation;

use super::names::{table_sql, unique_names};
use super::writer::Writer;
use crate::catalog::Table;
use crate::expr::sql;
use crate::names::quoted_if_needed;
use crate::select::{Item, Select, Stage, indented};
use crate::values::cast_sql;

impl Writer<'_> {
    pub fn scan(&mut self, node: &TableScan, alias: Option<&TableReference>) -> Result<Select> {
        let schema = Arc::clone(&node.projected_schema);
        let column = |index: usize| node.projection.as_ref().map_or(index, |projection| projection[index]);
        let width = schema.fields().len();
        let hint = alias.map_or_else(|| node.table_name.table(), TableReference::table);
        if let Some(relation) = SharedRelation::scanned(node) {
            let (table, columns) = self.shared(&relation)?;
            return Ok(self.named(&table, (0..width).map(|index| columns[column(index)].clone()), schema, hint));
        }
        let provider = source_as_provider(&node.source);
        if let Ok(provider) = &provider
            && let Some(work) = provider.downcast_ref::<CteWorkTable>()
        {
            let open = self.open.iter_mut().rev().find(|open| open.name == work.name());
            let open =
                open.ok_or_else(|| plan_datafusion_err!("{} is read outside of its recursive term", work.name()))?;
            open.reads += 1;
            let (table, columns) = (open.written.clone(), open.columns.clone());
            return Ok(self.named(&table, (0..width).map(|index| columns[column(index)].clone()), schema, hint));
        }
        let columns: Vec<_> = schema.fields().iter().map(|field| field.name().clone()).collect();
        let written = match &provider {
            Ok(provider) => provider.downcast_ref::<Table>().and_then(|table| table.call.clone()),
            Err(_) => None,
        };
        let is_call = written.is_some();
        let table = written.unwrap_or_else(|| table_sql(&node.table_name));
        let is_named = |alias: &str| !is_call && node.table_name.table() == alias;
        // A call of a function is named so; a table may be.
        let hint = if is_call { hint.trim_end_matches("()") } else { hint };
        let alias = self.alias(hint);
        let from = if is_named(&alias) { table } else { format!("{table} AS {}", quoted_if_needed(&alias)) };
        let items = columns.iter().map(|name| Item::column(&alias, name)).collect();
        let mut select = Select::new(schema, Some(from), items, hint);
        for filter in &node.filters {
            let condition = sql(filter, &mut self.over(std::slice::from_ref(&select)))?;
            select.filters.push(condition);
            select.stage = Stage::Where;
        }
        Ok(select)
    }

    pub fn subquery_alias(&mut self, node: &SubqueryAlias) -> Result<Select> {
        let schema = Arc::clone(&node.schema);
        let select = match node.input.as_ref() {
            LogicalPlan::TableScan(scan) => self.scan(scan, Some(&node.alias))?,
            input => self.select(input)?,
        };
        Ok(Select { schema, hint: node.alias.table().to_owned(), ..select })
    }

    pub fn values(&mut self, node: &Values) -> Result<Select> {
        let names: Vec<_> = unique_names(&node.schema).iter().map(|name| quoted_if_needed(name)).collect();
        let rows = node.values.iter().map(|row| {
            let over = &mut self.over(&[]);
            let row = row.iter().map(|value| sql(value, over)).collect::<Result<Vec<_>>>()?;
            Ok(if self.unites_values {
                let items = row.iter().zip(&names).map(|(value, name)| format!("{value} AS {name}"));
                format!("SELECT {}", items.collect::<Vec<_>>().join(", "))
            } else {
                format!("({})", row.join(", "))
            })
        });
        let rows = rows.collect::<Result<Vec<_>>>()?;
        let alias = self.alias("rows");
        let from = if self.unites_values {
            format!("(\n{}\n) AS {alias}", indented(&rows.join("\nUNION ALL\n")))
        } else {
            format!("(VALUES {}) AS {alias}({})", rows.join(", "), names.join(", "))
        };
        let items = unique_names(&node.schema).iter().map(|name| Item::column(&alias, name)).collect();
        Ok(Select::new(Arc::clone(&node.schema), Some(from), items, "rows"))
    }
}

pub fn empty(node: &EmptyRelation) -> Select {
    let fields = node.schema.fields().iter();
    let items = fields.map(|field| {
        let sql = cast_sql("NULL", field.data_type());
        Item { sql, name: None, is_simple: true, is_volatile: false }
    });
    let items = items.collect();
    let mut select = Select::new(Arc::clone(&node.schema), None, items, "nothing");
    if !node.produce_one_row {
        select.filters.push("FALSE".to_owned());
        select.stage = Stage::Where;
    }
    select
}
