//! A query of a plan.

use datafusion_common::config::ConfigOptions;
use datafusion_common::{Result, plan_err};
use datafusion_expr::{Distinct, LogicalPlan};
use std::sync::Arc;
use xql_relations::anew::check_found_again;

use super::aggregate::aggregate;
use super::distinct::{distinct, distinct_on};
use super::empty_relation::empty_relation;
use super::filter::filter;
use super::join::join;
use super::limit::limit;
use super::projection::projection;
use super::recursive_query::recursive_query;
use super::select::Select;
use super::sort::sort;
use super::subquery::subquery;
use super::subquery_alias::subquery_alias;
use super::table_scan::table_scan;
use super::union::union;
use super::unnest::unnest;
use super::values::values;
use super::window::window;
use super::writer::Writer;

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
    /// The `SELECT` of a plan.
    #[recursive::recursive]
    pub fn select(&mut self, plan: &LogicalPlan) -> Result<Select> {
        Ok(match plan {
            LogicalPlan::Projection(node) => {
                let input = self.select(&node.input)?;
                projection(self, node, input)?
            }
            LogicalPlan::Filter(node) => {
                let input = self.select(&node.input)?;
                filter(self, node, input)?
            }
            LogicalPlan::Window(node) => {
                let input = self.select(&node.input)?;
                window(self, node, input)?
            }
            LogicalPlan::Aggregate(node) => {
                let input = self.select(&node.input)?;
                aggregate(self, node, input)?
            }
            LogicalPlan::Sort(node) => {
                let input = self.select(&node.input)?;
                sort(self, node, input)?
            }
            LogicalPlan::Limit(node) => {
                let input = self.select(&node.input)?;
                limit(self, node, input)?
            }
            LogicalPlan::Distinct(Distinct::All(input)) => {
                let input = self.select(input)?;
                distinct(self, input)
            }
            LogicalPlan::Distinct(Distinct::On(node)) => {
                let input = self.select(&node.input)?;
                distinct_on(self, node, input)?
            }
            LogicalPlan::Unnest(node) => {
                let input = self.select(&node.input)?;
                unnest(self, node, input)?
            }
            LogicalPlan::Subquery(node) => {
                let input = self.select(&node.subquery)?;
                subquery(self, node, input)
            }
            LogicalPlan::SubqueryAlias(node) => match node.input.as_ref() {
                LogicalPlan::TableScan(scan) => subquery_alias(node, table_scan(self, scan, Some(&node.alias))?),
                input => subquery_alias(node, self.select(input)?),
            },
            LogicalPlan::Union(node) => union(self, node)?,
            LogicalPlan::Join(node) => join(self, node)?,
            LogicalPlan::RecursiveQuery(node) => recursive_query(self, node)?,
            LogicalPlan::TableScan(node) => table_scan(self, node, None)?,
            LogicalPlan::EmptyRelation(node) => empty_relation(node),
            LogicalPlan::Values(node) => values(self, node)?,
            // It is there for an optimizer of plans and moves no row to another place.
            LogicalPlan::Repartition(node) => self.select(&node.input)?,
            LogicalPlan::Statement(_)
            | LogicalPlan::Explain(_)
            | LogicalPlan::Analyze(_)
            | LogicalPlan::Extension(_)
            | LogicalPlan::Dml(_)
            | LogicalPlan::Ddl(_)
            | LogicalPlan::Copy(_)
            | LogicalPlan::DescribeTable(_) => {
                let shown = plan.display().to_string();
                return plan_err!("{shown} cannot be written as text beside a derivative that sees through relations");
            }
        })
    }
}
