//! LATERAL as joins.

use datafusion_common::Result;
use datafusion_expr::LogicalPlan;
use datafusion_expr::logical_plan::Subquery;
use datafusion_optimizer::decorrelate_lateral_join::DecorrelateLateralJoin;
use datafusion_optimizer::{Optimizer, OptimizerContext};
use std::sync::Arc;

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
