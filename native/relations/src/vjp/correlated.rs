//! LATERAL and correlated subqueries as joins.

use datafusion_common::{Column, Result, plan_err};
use datafusion_expr::logical_plan::{JoinConstraint, Subquery};
use datafusion_expr::{Expr, LogicalPlan};
use datafusion_optimizer::decorrelate_lateral_join::DecorrelateLateralJoin;
use datafusion_optimizer::scalar_subquery_to_join::ScalarSubqueryToJoin;
use datafusion_optimizer::{Optimizer, OptimizerContext};
use std::sync::Arc;
use xql_autodiff::vocabulary::columns::columns_read;
use xql_autodiff::vocabulary::messages::abbreviate;

use crate::vocabulary::nodes::{any_node, any_part};
use crate::vocabulary::operators::{Operators, Recognize};

/// Returns a subquery with what relations and scalar subqueries in it read of what stands beside or around them as conditions of joins, as
/// DataFusion's optimizer writes them. What it still names of a query around it, it really takes from there.
///
/// ```text
/// Inner Join:                                   Inner Join: Filter: d.k = w.k
///   TableScan: w                          ->      TableScan: w
///   Subquery:                                     TableScan: d
///     Filter: d.k = outer_ref(w.k)
///       TableScan: d
/// ```
pub fn with_joins(subquery: &Subquery) -> Result<Subquery> {
    if subquery.outer_ref_columns.is_empty() && !is_correlated_within(&subquery.subquery)? {
        return Ok(subquery.clone());
    }
    let plan = decorrelate(&subquery.subquery)?;
    let outer_ref_columns = plan.all_out_ref_exprs();
    Ok(Subquery { subquery: Arc::new(plan), outer_ref_columns, spans: subquery.spans.clone() })
}

/// Returns the same of a query in FROM.
///
/// # Errors
/// If LATERAL in it is none that DataFusion makes a join of.
pub fn with_joins_of(query: &Arc<LogicalPlan>) -> Result<Arc<LogicalPlan>> {
    let is_lateral = |node: &LogicalPlan| Ok(is_lateral(node));
    if !any_node(query, is_lateral)? {
        return Ok(Arc::clone(query));
    }
    let plan = decorrelate(query)?;
    if any_node(&plan, is_lateral)? {
        return plan_err!("{LATERAL}");
    }
    Ok(Arc::new(plan))
}

/// Returns the plan of a relation that several places read with what is LATERAL or correlated in it as joins, unless calls are in it: these
/// find the variables of subqueries for themselves.
///
/// # Errors
/// If the plan cannot be put together again.
pub fn with_joins_in_relation(plan: LogicalPlan, recognize: Recognize) -> Result<LogicalPlan> {
    if !is_correlated_within(&plan)? || !Operators::from_plan(&plan, recognize)?.is_empty() {
        return Ok(plan);
    }
    decorrelate(&plan)
}

const LATERAL: &str = "a gradient by row passes through LATERAL where DataFusion makes a join of it, and of this one it makes none, as of \
                       one with LIMIT. Write it as a join";

fn decorrelate(query: &LogicalPlan) -> Result<LogicalPlan> {
    let optimizer =
        Optimizer::with_rules(vec![Arc::new(ScalarSubqueryToJoin::new()), Arc::new(DecorrelateLateralJoin::new())]);
    let context = OptimizerContext::new().with_skip_failing_rules(false);
    optimizer.optimize(query.clone(), &context, |_, _| {})
}

/// Returns whether a relation or a scalar subquery in a plan reads columns of what stands beside or around it.
fn is_correlated_within(plan: &LogicalPlan) -> Result<bool> {
    any_node(plan, |node| Ok(is_lateral(node) || has_correlated(node)?))
}

/// Returns whether a node is LATERAL and reads columns of what stands beside it.
fn is_lateral(node: &LogicalPlan) -> bool {
    matches!(node, LogicalPlan::Subquery(lateral) if !lateral.outer_ref_columns.is_empty())
}

/// Returns whether an expression of a node has a correlated scalar subquery.
fn has_correlated(node: &LogicalPlan) -> Result<bool> {
    any_part(node, |part| matches!(part, Expr::ScalarSubquery(subquery) if !subquery.outer_ref_columns.is_empty()))
}

/// Returns the error for a subquery that takes columns of a query around it, or whose LATERAL takes those of what stands beside it.
///
/// # Errors
/// Always.
pub fn correlated<T>(subquery: &Subquery) -> Result<T> {
    if any_node(&subquery.subquery, |node| Ok(is_lateral(node)))? {
        return plan_err!("{LATERAL}");
    }
    let shown = abbreviate(&Expr::ScalarSubquery(subquery.clone()));
    if let Some(column) = used_outside(subquery)? {
        return plan_err!(
            "the correlated subquery {shown} reads the relation of the variable and {column} of the query around it, for which DataFusion \
             takes the bare name of a column that USING joins. If the column of the join is meant, write the table before it"
        );
    }
    plan_err!("the correlated subquery {shown} reads the relation of the variable. Write it as a join")
}

/// Returns a column of the query around that has the name of one that a `USING` in a subquery joins.
fn used_outside(subquery: &Subquery) -> Result<Option<Column>> {
    let mut used = None;
    any_node(&subquery.subquery, |node| {
        if let LogicalPlan::Join(join) = node
            && join.join_constraint == JoinConstraint::Using
        {
            let mut read = subquery.outer_ref_columns.iter().flat_map(columns_read);
            let is_key =
                |name: &str| join.on.iter().any(|(key, _)| key.try_as_col().is_some_and(|key| key.name == name));
            used = read.find(|column| is_key(&column.name));
        }
        Ok(used.is_some())
    })?;
    Ok(used)
}
