//! Statements that are planned here, as tables of the host.

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::default_table_source::source_as_provider;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::{Result, plan_err};
use datafusion::logical_expr::{Explain, Expr, LogicalPlan, LogicalPlanBuilder, SubqueryAlias, TableScan, TableType};
use datafusion::physical_plan::ExecutionPlan;
use std::sync::Arc;

use crate::reunify::NamedQuery;

/// A query that is planned here, as a table of the host.
#[derive(Debug)]
pub struct StatementTable {
    /// Its columns.
    pub schema: SchemaRef,
    /// The plan that it has here.
    pub plan: LogicalPlan,
    /// What it reads.
    pub inputs: StatementInputs,
}

/// What is known of the tables and views that a statement reads.
#[derive(Debug)]
pub struct StatementInputs {
    /// The queries of the views: what else reads these reads the same ones.
    pub queries: Vec<Arc<NamedQuery>>,
    /// Whether what several places read is computed once even without a derivative.
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

/// What `read` makes of the statement that a node of a plan of a host scans, and of the scan; nothing if it scans none.
fn map_statement_scan<T>(node: &LogicalPlan, read: impl FnOnce(&StatementTable, &TableScan) -> T) -> Option<T> {
    let LogicalPlan::TableScan(scan) = node else { return None };
    let provider = source_as_provider(&scan.source).ok()?;
    Some(read(provider.downcast_ref()?, scan))
}

/// Whether what several places of a plan of a host read is computed once even without a derivative: it is so in a statement that it scans.
///
/// # Errors
/// If the plan cannot be gone through.
pub fn shares_ctes(plan: &LogicalPlan) -> Result<bool> {
    let mut shares = false;
    plan.apply_with_subqueries(|node| {
        shares |= map_statement_scan(node, |statement, _| statement.inputs.shares_ctes).unwrap_or_default();
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(shares)
}

/// The plan of a host with the plans of the statements that it scans.
///
/// # Errors
/// If the plan cannot be put together again.
pub fn inline_statements(plan: LogicalPlan) -> Result<LogicalPlan> {
    let inlined = plan.transform_up_with_subqueries(|node| match map_statement_scan(&node, alias_statement) {
        Some(plan) => plan.map(Transformed::yes),
        None => Ok(Transformed::no(node)),
    })?;
    Ok(inlined.data)
}

/// The plan of a statement as a scan of it has it.
fn alias_statement(statement: &StatementTable, scan: &TableScan) -> Result<LogicalPlan> {
    let alias = SubqueryAlias::try_new(Arc::new(statement.plan.clone()), scan.table_name.clone())?;
    let mut plan = LogicalPlanBuilder::from(LogicalPlan::SubqueryAlias(alias));
    if scan.projection.is_some() {
        plan = plan.project(scan.projected_schema.columns().into_iter().map(Expr::Column))?;
    }
    plan.build()
}

/// The plan of a statement that is planned here, if a plan of a host reads nothing else.
///
/// # Errors
/// If the plan cannot be put together again.
pub fn as_whole_statement(plan: &LogicalPlan) -> Result<Option<LogicalPlan>> {
    Ok(match plan {
        LogicalPlan::Projection(projection) if projection.schema.columns() == projection.input.schema().columns() => {
            map_statement_scan(&projection.input, |statement, _| statement.plan.clone())
        }
        LogicalPlan::Explain(explain) => as_whole_statement(&explain.plan)?
            .map(|plan| LogicalPlan::Explain(Explain { plan: Arc::new(plan), ..explain.clone() })),
        _ => None,
    })
}
