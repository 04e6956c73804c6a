//! Statements that are planned here, as tables of the host.

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::default_table_source::source_as_provider;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::metadata::ScalarAndMetadata;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::{Result, plan_err};
use datafusion::logical_expr::{Explain, Expr, LogicalPlan, LogicalPlanBuilder, SubqueryAlias, TableScan, TableType};
use datafusion::physical_plan::ExecutionPlan;
use std::sync::Arc;
use xql_relations::replace_parameters;

use crate::reunify::NamedQuery;
use crate::statement_parameters::values_in;

/// A query that is planned here, as a table of the host.
#[derive(Debug)]
pub struct StatementTable {
    /// Its columns.
    pub schema: SchemaRef,
    /// Its plan.
    pub plan: LogicalPlan,
    /// The tables and views that it scans.
    pub inputs: StatementInputs,
    /// The names of its parameters, which have values once it is executed: those of `PREPARE`.
    pub parameters: Vec<String>,
}

/// The tables and views that a statement scans.
#[derive(Debug)]
pub struct StatementInputs {
    /// The queries of the views, kept so that other readers share them.
    pub queries: Vec<Arc<NamedQuery>>,
    /// Whether CTEs are computed once even without a derivative.
    pub shares_ctes: bool,
}

#[async_trait]
impl TableProvider for StatementTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    async fn scan(
        &self,
        _state: &dyn Session,
        _projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan_err!("a statement with derivatives is planned by the session that it is of")
    }
}

/// Applies a function to the statement that a node scans, and to the scan. Returns `None` if the node scans none.
fn map_statement_scan<T>(node: &LogicalPlan, read: impl FnOnce(&StatementTable, &TableScan) -> T) -> Option<T> {
    let LogicalPlan::TableScan(scan) = node else { return None };
    let provider = source_as_provider(&scan.source).ok()?;
    Some(read(provider.downcast_ref()?, scan))
}

/// Returns whether a statement that the plan scans computes its CTEs once even without a derivative.
///
/// # Errors
/// If the plan cannot be traversed.
pub fn shares_ctes(plan: &LogicalPlan) -> Result<bool> {
    let mut shares = false;
    plan.apply_with_subqueries(|node| {
        shares |= map_statement_scan(node, |statement, _| statement.inputs.shares_ctes).unwrap_or_default();
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(shares)
}

/// Applies a function to the statement that a node scans with the values of its parameters: its plan, and the scan.
fn map_executed<T>(node: &LogicalPlan, read: impl FnOnce(LogicalPlan, &TableScan) -> Result<T>) -> Option<Result<T>> {
    let (scan, values) = match node {
        LogicalPlan::Filter(filter) => (filter.input.as_ref(), values_in(&filter.predicate)?),
        node => (node, vec![]),
    };
    map_statement_scan(scan, |statement, scan| read(statement.executed(values)?, scan))
}

impl StatementTable {
    /// Returns the plan with the values of its parameters.
    fn executed(&self, values: Vec<ScalarAndMetadata>) -> Result<LogicalPlan> {
        if values.len() != self.parameters.len() {
            return plan_err!(
                "a prepared statement has {} parameters, and got {} values",
                self.parameters.len(),
                values.len()
            );
        }
        if values.is_empty() {
            return Ok(self.plan.clone());
        }
        replace_parameters(self.plan.clone(), &self.parameters.iter().cloned().zip(values).collect())
    }
}

/// Replaces scans of statements by their plans.
///
/// # Errors
/// If the plan cannot be rebuilt, or a prepared statement has no values for its parameters.
pub fn inline_statements(plan: LogicalPlan) -> Result<LogicalPlan> {
    let inlined = plan.transform_down_with_subqueries(|node| match map_executed(&node, alias_statement) {
        Some(plan) => Ok(Transformed::new(plan?, true, TreeNodeRecursion::Jump)),
        None => Ok(Transformed::no(node)),
    })?;
    Ok(inlined.data)
}

/// Returns the plan of a statement with the name and the columns of its scan.
fn alias_statement(plan: LogicalPlan, scan: &TableScan) -> Result<LogicalPlan> {
    let alias = SubqueryAlias::try_new(Arc::new(plan), scan.table_name.clone())?;
    let mut plan = LogicalPlanBuilder::from(LogicalPlan::SubqueryAlias(alias));
    if scan.projection.is_some() {
        plan = plan.project(scan.projected_schema.columns().into_iter().map(Expr::Column))?;
    }
    plan.build()
}

/// Returns the plan of a statement, if a plan of the host scans it whole and nothing else.
///
/// # Errors
/// If the plan cannot be rebuilt.
pub fn as_whole_statement(plan: &LogicalPlan) -> Result<Option<LogicalPlan>> {
    Ok(match plan {
        LogicalPlan::Projection(projection) if projection.schema.columns() == projection.input.schema().columns() => {
            map_executed(&projection.input, |plan, _| Ok(plan)).transpose()?
        }
        LogicalPlan::Explain(explain) => as_whole_statement(&explain.plan)?
            .map(|plan| LogicalPlan::Explain(Explain { plan: Arc::new(plan), ..explain.clone() })),
        _ => None,
    })
}
