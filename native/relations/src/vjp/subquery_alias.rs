//! CTEs, views and derived tables.

use datafusion_common::Result;
use datafusion_expr::{LogicalPlan, SubqueryAlias};

use super::linearize::SegmentBuilder;
use super::nodes::Node;
use super::residuals::needs_no_stage;
use super::segment::Segment;

/// A relation that has several readers is computed once, unless that is cheap.
pub fn subquery_alias(builder: &mut SegmentBuilder, node: Node, alias: &SubqueryAlias) -> Result<Segment> {
    if matches!(alias.input.as_ref(), LogicalPlan::SubqueryAlias(_)) {
        return builder.region(&alias.input);
    }
    let several = builder.stages.nodes.times(node) > builder.readers;
    let region = builder.for_readers(node, |builder| builder.region(&alias.input))?;
    if several && !region.single && !needs_no_stage(&region.plan)? {
        return builder.stored(node, region);
    }
    Ok(region)
}
