//! A query of a plan.

use datafusion_common::{Result, plan_err};
use datafusion_expr::{Distinct, LogicalPlan};
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
use super::writer::{Form, Writer};
use crate::names::without_words;

/// The text of a query whose columns have the names that the plan gives them.
pub fn query_sql(plan: &LogicalPlan, form: Form) -> Result<String> {
    check_found_again(plan)?;
    let mut writer = Writer::new(plan, form)?;
    let select = writer.select(plan)?;
    let names = plan.schema().fields().iter().map(|field| without_words(field.name())).collect::<Vec<_>>();
    let body = select.text(&names);
    Ok(writer.with_tables(body, 0))
}

impl Writer<'_> {
    /// The `SELECT` of a plan.
    #[recursive::recursive]
    pub fn select(&mut self, plan: &LogicalPlan) -> Result<Select> {
        Ok(match plan {
            LogicalPlan::Projection(node) => self.over(&node.input, node, projection)?,
            LogicalPlan::Filter(node) => self.over(&node.input, node, filter)?,
            LogicalPlan::Window(node) => self.over(&node.input, node, window)?,
            LogicalPlan::Aggregate(node) => self.over(&node.input, node, aggregate)?,
            LogicalPlan::Sort(node) => self.over(&node.input, node, sort)?,
            LogicalPlan::Limit(node) => self.over(&node.input, node, limit)?,
            LogicalPlan::Unnest(node) => self.over(&node.input, node, unnest)?,
            LogicalPlan::Subquery(node) => self.over(&node.subquery, node, subquery)?,
            LogicalPlan::Distinct(Distinct::All(input)) => {
                let input = self.select(input)?;
                distinct(self, input)
            }
            LogicalPlan::Distinct(Distinct::On(node)) => self.over(&node.input, node, distinct_on)?,
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

    /// The `SELECT` of a node over that of its input.
    fn over<N>(
        &mut self,
        input: &LogicalPlan,
        node: &N,
        write: fn(&mut Self, &N, Select) -> Result<Select>,
    ) -> Result<Select> {
        let input = self.select(input)?;
        write(self, node, input)
    }
}
