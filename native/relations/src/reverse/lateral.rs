//! LATERAL as joins.

use datafusion_common::{Result, plan_err};
use datafusion_expr::logical_plan::Subquery;
use datafusion_expr::{Expr, LogicalPlan};
use datafusion_optimizer::decorrelate_lateral_join::DecorrelateLateralJoin;
use datafusion_optimizer::{Optimizer, OptimizerContext};
use std::sync::Arc;
use xql_autodiff::vocabulary::messages::abbreviated;

use crate::vocabulary::nodes::any_node;

/// A subquery with what its relations read of those beside them as conditions of joins, as DataFusion's optimizer writes them. What
/// it still names of a query around it, it really takes from there.
///
/// ```text
/// Inner Join:                                   Inner Join: Filter: d.k = w.k
///   TableScan: w                          ->      TableScan: w
///   Subquery:                                     TableScan: d
///     Filter: d.k = outer_ref(w.k)
///       TableScan: d
/// ```
pub fn with_joins_for_lateral(subquery: &Subquery) -> Result<Subquery> {
    if subquery.outer_ref_columns.is_empty() {
        return Ok(subquery.clone());
    }
    let optimizer = Optimizer::with_rules(vec![Arc::new(DecorrelateLateralJoin::new())]);
    let context = OptimizerContext::new().with_skip_failing_rules(false);
    let plan: LogicalPlan = optimizer.optimize(subquery.subquery.as_ref().clone(), &context, |_, _| {})?;
    let outer_ref_columns = plan.all_out_ref_exprs();
    Ok(Subquery { subquery: Arc::new(plan), outer_ref_columns, spans: subquery.spans.clone() })
}

/// The error for a subquery that takes columns of a query around it, or whose LATERAL takes those of what stands beside it.
///
/// # Errors
/// Always.
pub fn correlated<T>(subquery: &Subquery) -> Result<T> {
    let is_lateral =
        |node: &LogicalPlan| matches!(node, LogicalPlan::Subquery(lateral) if !lateral.outer_ref_columns.is_empty());
    if any_node(&subquery.subquery, |node| Ok(is_lateral(node)))? {
        return plan_err!(
            "a gradient by row passes through LATERAL where DataFusion makes a join of it, and of this one it makes none, as of one \
             with LIMIT. Write it as a join"
        );
    }
    plan_err!(
        "the correlated subquery {} reads the relation of the variable. Write it as a join",
        abbreviated(&Expr::ScalarSubquery(subquery.clone()))
    )
}
