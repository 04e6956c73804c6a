//! Rewriting plans whose columns may be nullable afterwards where they were not before.

use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{DFSchema, Result};
use datafusion_expr::{LogicalPlan, Union};
use std::sync::Arc;

/// Rewrites the nodes of a plan bottom-up. The schemas of the nodes above a rewritten one are recomputed, because the
/// nullability of an expression depends on that of its input.
#[recursive::recursive]
pub fn rewrite_up(
    plan: LogicalPlan,
    rewrite: &mut dyn FnMut(LogicalPlan) -> Result<Transformed<LogicalPlan>>,
) -> Result<Transformed<LogicalPlan>> {
    let below = plan
        .map_subqueries(|subquery| rewrite_up(subquery, rewrite))?
        .transform_data(|plan| plan.map_children(|child| rewrite_up(child, rewrite)))?;
    let below = if below.transformed { below.map_data(with_schema_anew)? } else { below };
    below.transform_data(rewrite)
}

fn with_schema_anew(plan: LogicalPlan) -> Result<LogicalPlan> {
    match plan {
        // DataFusion leaves its schema as it is: the nullability is that of all inputs.
        LogicalPlan::Union(Union { inputs, schema }) => {
            let fields = schema.iter().enumerate().map(|(index, (table, field))| {
                let nullable = inputs.iter().any(|input| input.schema().field(index).is_nullable());
                (table.cloned(), Arc::new(field.as_ref().clone().with_nullable(nullable)))
            });
            let schema = DFSchema::new_with_metadata(fields.collect(), schema.metadata().clone())?;
            Ok(LogicalPlan::Union(Union { inputs, schema: Arc::new(schema) }))
        }
        other => other.recompute_schema(),
    }
}
