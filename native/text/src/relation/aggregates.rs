//! Aggregates: GROUP BY with its keys and sets.

use datafusion_common::Result;
use datafusion_expr::utils::grouping_set_to_exprlist;
use datafusion_expr::{Aggregate, Expr};
use std::sync::Arc;

use super::grouping_sets::Repeated;
use super::writer::Writer;
use crate::expr::{sql, unaliased};
use crate::select::{Item, Select, Stage};
use crate::values::{cast_sql, is_constant, type_sql};

impl Writer<'_> {
    pub fn aggregate(&mut self, node: &Aggregate) -> Result<Select> {
        let mut input = self.select(&node.input)?;
        let exprs: Vec<_> = node.group_expr.iter().chain(&node.aggr_expr).collect();
        if input.stage > Stage::Where || !input.can_be_read_by(&exprs, 0) {
            input = self.relation(input);
        }
        let sets = match node.group_expr.as_slice() {
            [Expr::GroupingSet(sets)] => Some(sets),
            _ => None,
        };
        let repeated = sets.map(Repeated::of).unwrap_or_default();
        let marks = self.marks(&repeated, &mut input);
        let mut groups = vec![];
        let mut items = vec![];
        for key in grouping_set_to_exprlist(&node.group_expr)? {
            items.push(self.item(key, &input)?);
        }
        if let Some(sets) = sets {
            let over = &mut self.over(std::slice::from_ref(&input));
            groups.push(repeated.sql(sets, &marks, over)?);
            let kind = type_sql(node.schema.field(items.len()).data_type())?;
            let sql = format!("CAST({} AS {kind})", Repeated::number_sql(&items, &marks));
            items.push(Item { sql, name: None, is_simple: true, is_volatile: false });
        } else {
            for (expr, field) in node.group_expr.iter().zip(node.schema.fields()) {
                let key = sql(unaliased(expr), &mut self.over(std::slice::from_ref(&input)))?;
                groups.push(if is_constant(&key) { cast_sql(&key, field.data_type()) } else { key });
            }
        }
        for expr in &node.aggr_expr {
            let written = sql(unaliased(expr), &mut self.over(std::slice::from_ref(&input)))?;
            items.push(Item { sql: written, name: None, is_simple: true, is_volatile: expr.is_volatile() });
        }
        let schema = Arc::clone(&node.schema);
        Ok(Select { stage: Stage::Group, groups: Some(groups), items, schema, ..input })
    }
}
