//! A query of a plan.

use datafusion_common::config::ConfigOptions;
use datafusion_common::{Result, plan_err};
use datafusion_expr::{Distinct, LogicalPlan};
use std::sync::Arc;
use xql_relations::anew::check_found_again;

use super::leaves::empty;
use super::writer::Writer;
use crate::select::Select;

/// The text of a query whose columns have the names that the plan gives them. Rows that are written down are VALUES, or queries of
/// a row each that are united.
pub fn query_sql(plan: &LogicalPlan, options: &Arc<ConfigOptions>, unites_values: bool) -> Result<String> {
    check_found_again(plan)?;
    let mut writer = Writer::new(plan, options, unites_values)?;
    let select = writer.select(plan)?;
    let names = plan.schema().fields().iter().map(|field| field.name().clone()).collect::<Vec<_>>();
    let body = select.text(&names);
    Ok(writer.with_tables(body, 0))
}

impl Writer<'_> {
    #[recursive::recursive]
    pub fn select(&mut self, plan: &LogicalPlan) -> Result<Select> {
        match plan {
            LogicalPlan::Projection(node) => self.projection(node),
            LogicalPlan::Filter(node) => self.filter(node),
            LogicalPlan::Window(node) => self.window(node),
            LogicalPlan::Aggregate(node) => self.aggregate(node),
            LogicalPlan::Sort(node) => self.sort(node),
            LogicalPlan::Limit(node) => self.limit(node),
            LogicalPlan::Join(node) => self.join(node),
            LogicalPlan::Union(node) => self.union(node),
            LogicalPlan::Distinct(Distinct::All(input)) => self.distinct(input),
            LogicalPlan::Distinct(Distinct::On(node)) => self.distinct_on(node),
            LogicalPlan::TableScan(node) => self.scan(node, None),
            LogicalPlan::SubqueryAlias(node) => self.subquery_alias(node),
            LogicalPlan::EmptyRelation(node) => Ok(empty(node)),
            LogicalPlan::Unnest(node) => self.unnest(node),
            LogicalPlan::Values(node) => self.values(node),
            LogicalPlan::RecursiveQuery(node) => self.recursive_query(node),
            // It is there for an optimizer of plans and moves no row to another place.
            LogicalPlan::Repartition(node) => self.select(&node.input),
            LogicalPlan::Subquery(node) if node.outer_ref_columns.is_empty() => self.select(&node.subquery),
            LogicalPlan::Subquery(node) => self.lateral(node),
            other => {
                let shown = other.display().to_string();
                plan_err!("{shown} cannot be written as text beside a derivative that sees through relations")
            }
        }
    }
}
