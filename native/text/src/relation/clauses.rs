//! Nodes that are a clause of a SELECT: its items, WHERE and HAVING, ORDER BY, LIMIT, DISTINCT.

use datafusion_common::Result;
use datafusion_expr::{DistinctOn, Filter, Limit, LogicalPlan, Projection, Sort};
use std::sync::Arc;

use super::writer::Writer;
use crate::expr::sql;
use crate::select::{Select, Stage};

impl Writer<'_> {
    pub fn projection(&mut self, node: &Projection) -> Result<Select> {
        let mut input = self.select(&node.input)?;
        let exprs: Vec<_> = node.expr.iter().collect();
        if input.stage == Stage::Distinct || !input.can_be_read_by(&exprs, 1) {
            input = self.relation(input);
        }
        let items = node.expr.iter().map(|expr| self.item(expr, &input)).collect::<Result<Vec<_>>>()?;
        Ok(Select { items, schema: Arc::clone(&node.schema), ..input })
    }

    pub fn filter(&mut self, node: &Filter) -> Result<Select> {
        let mut input = self.select(&node.input)?;
        if input.stage > Stage::Group || !input.can_be_read_by(&[&node.predicate], 1) {
            input = self.relation(input);
        }
        let condition = sql(&node.predicate, &mut self.over(std::slice::from_ref(&input)))?;
        if input.stage == Stage::Group {
            input.having.push(condition);
        } else {
            input.filters.push(condition);
            input.stage = Stage::Where;
        }
        Ok(input)
    }

    pub fn sort(&mut self, node: &Sort) -> Result<Select> {
        let mut input = self.select(&node.input)?;
        let keys: Vec<_> = node.expr.iter().map(|key| &key.expr).collect();
        // DataFusion 54 loses rows of a LIMIT with an OFFSET that are ordered once more, unless they are limited once more:
        // SELECT * FROM (SELECT * FROM t ORDER BY id LIMIT 5 OFFSET 1) AS q ORDER BY id
        let rows = input.offset.as_ref().and(input.limit.clone());
        if input.stage >= Stage::Distinct || !input.can_be_read_by(&keys, 1) {
            input = self.relation(input);
        }
        input.order = self.order(&node.expr, &input)?;
        input.stage = Stage::Order;
        if let Some(limit) = node.fetch.map(|fetch| fetch.to_string()).or(rows) {
            input.limit = Some(limit);
            input.stage = Stage::Limit;
        }
        Ok(input)
    }

    pub fn limit(&mut self, node: &Limit) -> Result<Select> {
        let mut input = self.select(&node.input)?;
        if input.stage == Stage::Limit {
            input = self.relation(input);
        }
        let over = &mut self.over(&[]);
        input.limit = node.fetch.as_ref().map(|fetch| sql(fetch, over)).transpose()?;
        input.offset = node.skip.as_ref().map(|skip| sql(skip, over)).transpose()?;
        input.offset = input.offset.filter(|offset| offset != "0");
        input.stage = Stage::Limit;
        Ok(input)
    }

    pub fn distinct(&mut self, input: &LogicalPlan) -> Result<Select> {
        let mut input = self.select(input)?;
        if input.stage >= Stage::Distinct {
            input = self.relation(input);
        }
        input.distinct = Some("DISTINCT".to_owned());
        input.stage = Stage::Distinct;
        Ok(input)
    }

    pub fn distinct_on(&mut self, node: &DistinctOn) -> Result<Select> {
        let mut input = self.select(&node.input)?;
        let sort = node.sort_expr.as_deref().unwrap_or_default();
        let exprs: Vec<_> =
            node.on_expr.iter().chain(&node.select_expr).chain(sort.iter().map(|key| &key.expr)).collect();
        let on_constants = node.on_expr.iter().any(|expr| input.is_constant(expr));
        if input.stage > Stage::Where || !input.can_be_read_by(&exprs, 1) || on_constants {
            input = self.relation(input);
        }
        let over = &mut self.over(std::slice::from_ref(&input));
        let on = node.on_expr.iter().map(|expr| sql(expr, over)).collect::<Result<Vec<_>>>()?.join(", ");
        let order = self.order(sort, &input)?;
        let items = node.select_expr.iter().map(|expr| self.item(expr, &input)).collect::<Result<Vec<_>>>()?;
        let distinct = Some(format!("DISTINCT ON ({on})"));
        Ok(Select { stage: Stage::Limit, items, schema: Arc::clone(&node.schema), distinct, order, ..input })
    }
}
