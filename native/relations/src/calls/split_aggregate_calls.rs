//! Moves calls over aggregates out of aggregations. The DataFrame API builds them there; SQL has them in a projection
//! above.

use datafusion_common::Result;
use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_expr::utils::{find_aggregate_exprs, grouping_set_to_exprlist};
use datafusion_expr::{Aggregate, LogicalPlan, Projection};
use std::sync::Arc;

use crate::vocabulary::names::columns;
use crate::vocabulary::operators::{Recognize, is_call};

/// Moves expressions over aggregates from an aggregation into a projection above, if one of them is a call.
///
/// ```text
/// Aggregate: groupBy=[[w]], aggr=[[grad(sum(w * x), w) AS d]]
///   TableScan: t
/// ```
///
/// becomes
///
/// ```text
/// Projection: w, grad(sum(w * x), w) AS d
///   Aggregate: groupBy=[[w]], aggr=[[sum(w * x)]]
///     TableScan: t
/// ```
pub fn calls_above(plan: LogicalPlan, recognize: Recognize) -> Result<Transformed<LogicalPlan>> {
    let LogicalPlan::Aggregate(aggregate) = plan else { return Ok(Transformed::no(plan)) };
    let mut concerned = false;
    for expr in &aggregate.aggr_expr {
        concerned = concerned
            || expr.exists(|part| Ok(is_call(part, recognize) && !find_aggregate_exprs([part]).is_empty()))?;
    }
    if !concerned {
        return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
    }
    let Aggregate { input, group_expr, aggr_expr, .. } = aggregate;
    let aggregates = find_aggregate_exprs(&aggr_expr);
    let below = Aggregate::try_new(input, group_expr.clone(), aggregates.clone())?;
    let mut exprs = columns(&below.schema);
    let of_aggregates = exprs.split_off(exprs.len() - aggregates.len());
    let keys = grouping_set_to_exprlist(&group_expr)?.into_iter().cloned().zip(exprs.clone());
    let computed: Vec<_> = keys.chain(aggregates.into_iter().zip(of_aggregates)).collect();
    for expr in aggr_expr {
        let (table, name) = expr.qualified_name();
        let above = expr.transform_down(|part| {
            let column = computed.iter().find(|(computed, _)| *computed == part).map(|(_, column)| column.clone());
            Ok(column.map_or_else(
                || Transformed::no(part),
                |column| Transformed::new(column, true, TreeNodeRecursion::Jump),
            ))
        })?;
        exprs.push(above.data.alias_qualified(table, name));
    }
    let above = Projection::try_new(exprs, Arc::new(LogicalPlan::Aggregate(below)))?;
    Ok(Transformed::yes(LogicalPlan::Projection(above)))
}
