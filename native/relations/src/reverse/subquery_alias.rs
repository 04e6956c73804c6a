//! CTEs, views and derived tables.

use datafusion_common::Result;
use datafusion_expr::{LogicalPlan, SubqueryAlias};

use super::builder::RegionBuilder;
use super::nodes::Node;
use super::region::Region;
use super::stages::needs_no_stage;

/// A relation that has several readers is computed once, unless that is cheap.
pub fn subquery_alias(builder: &mut RegionBuilder, node: Node, alias: &SubqueryAlias) -> Result<Region> {
    if matches!(alias.input.as_ref(), LogicalPlan::SubqueryAlias(_)) {
        return builder.region(&alias.input);
    }
    // What it reads has its readers too, as parts of it.
    let around = builder.readers;
    builder.readers = around.max(builder.stages.nodes.times(node));
    let region = builder.region(&alias.input);
    let several = std::mem::replace(&mut builder.readers, around) > around;
    let region = region?;
    if several && !region.single && !needs_no_stage(&region.plan)? {
        return builder.stored(node, region);
    }
    Ok(region)
}
