//! Expressions of a node, over what a SELECT reads.

use datafusion_common::{Column, Result, plan_datafusion_err};
use datafusion_expr::expr::Sort as SortExpr;
use datafusion_expr::{Expr, LogicalPlan};
use xql_relations::unaliased;

use super::names::unique_names;
use super::select::{Item, Select, indent};
use super::writer::QueryWriter;
use crate::expr::{Scope, atom_sql, order_sql};

/// The scope of a node's expressions.
pub struct SelectScope<'w, 'a> {
    writer: &'w mut QueryWriter<'a>,
    inputs: &'w [Select],
}

impl Scope for SelectScope<'_, '_> {
    fn column(&mut self, column: &Column) -> Result<String> {
        let item = self.inputs.iter().find_map(|input| input.item(column));
        item.map(|item| item.sql.clone()).ok_or_else(|| plan_datafusion_err!("the text has no column {column}"))
    }

    fn outer_column(&mut self, column: &Column) -> Result<String> {
        let item = self.writer.outer.iter().rev().flatten().find_map(|input| input.item(column));
        item.map(|item| item.sql.clone()).ok_or_else(|| plan_datafusion_err!("the text has no outer column {column}"))
    }

    fn query(&mut self, plan: &LogicalPlan) -> Result<String> {
        self.writer.outer.push(self.inputs.to_vec());
        let select = self.writer.select(plan);
        self.writer.outer.pop();
        let select = select?;
        let text = select.to_sql(&unique_names(&select.schema));
        Ok(if text.contains('\n') { format!("(\n{}\n)", indent(&text)) } else { format!("({text})") })
    }
}

impl<'w, 'a> SelectScope<'w, 'a> {
    /// Creates the scope of several inputs.
    pub fn from_inputs(writer: &'w mut QueryWriter<'a>, inputs: &'w [Select]) -> Self {
        Self { writer, inputs }
    }

    /// Creates the scope of one input.
    pub fn from_input(writer: &'w mut QueryWriter<'a>, input: &'w Select) -> Self {
        Self { writer, inputs: std::slice::from_ref(input) }
    }
}

/// Writes an expression as an item over an input.
pub fn write_item(writer: &mut QueryWriter, expr: &Expr, input: &Select) -> Result<Item> {
    let inside = unaliased(expr);
    if let Expr::Column(column) = inside
        && let Some(item) = input.item(column)
    {
        return Ok(item.clone());
    }
    let sql = atom_sql(inside, &mut SelectScope::from_input(writer, input))?;
    let is_simple = matches!(inside, Expr::Literal(..));
    Ok(Item { sql, name: None, is_simple, is_volatile: inside.is_volatile() })
}

/// Writes the keys of ORDER BY without constants, which do not order.
pub fn write_order(writer: &mut QueryWriter, keys: &[SortExpr], input: &Select) -> Result<Vec<String>> {
    let over = &mut SelectScope::from_input(writer, input);
    let keys = keys.iter().filter(|key| !input.is_constant(&key.expr));
    keys.map(|key| order_sql(key, over)).collect()
}
