//! Unparses a plan, node by node.

use datafusion_common::{Result, plan_err};
use datafusion_expr::{Distinct, LogicalPlan};
use xql_relations::determinism::check_found_again;

use super::aggregate::write_aggregate;
use super::distinct::{write_distinct, write_distinct_on};
use super::empty_relation::write_empty_relation;
use super::filter::write_filter;
use super::join::write_join;
use super::limit::write_limit;
use super::projection::write_projection;
use super::recursive_query::write_recursive_query;
use super::select::Select;
use super::sort::write_sort;
use super::subquery::write_subquery;
use super::subquery_alias::write_subquery_alias;
use super::table_scan::write_table_scan;
use super::union::write_union;
use super::unnest::write_unnest;
use super::values::write_values;
use super::window::write_window;
use super::writer::{QueryWriter, UnparseOptions};
use crate::names::strip_fragments;

/// Writes a plan as a query whose columns have the names of the plan's.
pub fn query_sql(plan: &LogicalPlan, options: UnparseOptions) -> Result<String> {
    check_found_again(plan)?;
    let mut writer = QueryWriter::new(plan, options)?;
    let select = writer.select(plan)?;
    let names = plan.schema().fields().iter().map(|field| strip_fragments(field.name())).collect::<Vec<_>>();
    let body = select.to_sql(&names);
    Ok(writer.with_tables(body, 0))
}

impl QueryWriter<'_> {
    /// Writes the `SELECT` of a plan.
    #[recursive::recursive]
    pub fn select(&mut self, plan: &LogicalPlan) -> Result<Select> {
        Ok(match plan {
            LogicalPlan::Projection(node) => self.select_over(&node.input, node, write_projection)?,
            LogicalPlan::Filter(node) => self.select_over(&node.input, node, write_filter)?,
            LogicalPlan::Window(node) => self.select_over(&node.input, node, write_window)?,
            LogicalPlan::Aggregate(node) => self.select_over(&node.input, node, write_aggregate)?,
            LogicalPlan::Sort(node) => self.select_over(&node.input, node, write_sort)?,
            LogicalPlan::Limit(node) => self.select_over(&node.input, node, write_limit)?,
            LogicalPlan::Unnest(node) => self.select_over(&node.input, node, write_unnest)?,
            LogicalPlan::Subquery(node) => self.select_over(&node.subquery, node, write_subquery)?,
            LogicalPlan::Distinct(Distinct::All(input)) => {
                let input = self.select(input)?;
                write_distinct(self, input)
            }
            LogicalPlan::Distinct(Distinct::On(node)) => self.select_over(&node.input, node, write_distinct_on)?,
            LogicalPlan::SubqueryAlias(node) => match node.input.as_ref() {
                LogicalPlan::TableScan(scan) => {
                    write_subquery_alias(node, write_table_scan(self, scan, Some(&node.alias))?)
                }
                input => write_subquery_alias(node, self.select(input)?),
            },
            LogicalPlan::Union(node) => write_union(self, node)?,
            LogicalPlan::Join(node) => write_join(self, node)?,
            LogicalPlan::RecursiveQuery(node) => write_recursive_query(self, node)?,
            LogicalPlan::TableScan(node) => write_table_scan(self, node, None)?,
            LogicalPlan::EmptyRelation(node) => write_empty_relation(node),
            LogicalPlan::Values(node) => write_values(self, node)?,
            // Repartitioning is for the optimizer, and moves no row.
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

    /// Writes the `SELECT` of a node over that of its input.
    fn select_over<N>(
        &mut self,
        input: &LogicalPlan,
        node: &N,
        write: fn(&mut Self, &N, Select) -> Result<Select>,
    ) -> Result<Select> {
        let input = self.select(input)?;
        write(self, node, input)
    }
}
