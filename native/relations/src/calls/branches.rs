//! What a node reads if only one branch of a UNION ALL below it gave rows.

use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{Column, Result};
use datafusion_expr::{Expr, LogicalPlan, Projection};
use std::sync::Arc;

use crate::vocabulary::origin::{Origin, origin};

/// The plan with each UNION ALL that a column passes through replaced by one of its branches: one plan for each branch, none if
/// there is no union.
///
/// ```text
/// Filter: x > 0            Filter: x > 0          Filter: x > 0
///   Union                    Projection: a.x        Projection: b.x AS x
///     TableScan: a             TableScan: a           TableScan: b
///     TableScan: b
/// ```
#[recursive::recursive]
pub fn branches(plan: &LogicalPlan, column: usize) -> Result<Vec<LogicalPlan>> {
    let Origin::Below(sources) = origin(plan, column)? else { return Ok(vec![]) };
    let inputs = plan.inputs();
    let mut found = vec![];
    for (number, column) in sources {
        let Some(input) = inputs.get(number) else { continue };
        let below = branches(input, column)?;
        if let LogicalPlan::Union(union) = plan {
            let alone = if below.is_empty() { vec![(*input).clone()] } else { below };
            for input in alone {
                let renamed = union.schema.iter().zip(input.schema().iter()).map(|((table, field), below)| {
                    Expr::Column(Column::from(below)).alias_qualified(table.cloned(), field.name())
                });
                let projection = Projection::try_new(renamed.collect(), Arc::new(input.clone()))?;
                found.push(LogicalPlan::Projection(projection));
            }
            continue;
        }
        for branch in below {
            let mut position = 0;
            let over = plan.clone().map_children(|child| {
                position += 1;
                Ok(if position == number + 1 { Transformed::yes(branch.clone()) } else { Transformed::no(child) })
            })?;
            found.push(over.data);
        }
    }
    Ok(found)
}
