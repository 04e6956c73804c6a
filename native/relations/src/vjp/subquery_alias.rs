//! CTEs, views and derived tables.

use datafusion_common::Result;
use datafusion_expr::{LogicalPlan, SubqueryAlias};

use super::linearize::SegmentBuilder;
use super::nodes::Node;
use super::residuals::needs_no_residual;
use super::segment::Segment;

/// Linearizes the relation under a name. A relation with several readers is materialized, unless it is cheap to
/// compute.
pub fn subquery_alias(builder: &mut SegmentBuilder, node: Node, alias: &SubqueryAlias) -> Result<Segment> {
    if matches!(alias.input.as_ref(), LogicalPlan::SubqueryAlias(_)) {
        return builder.segment(&alias.input);
    }
    let several = builder.residuals.nodes.times(node) > builder.readers;
    let segment = builder.for_readers(node, |builder| builder.segment(&alias.input))?;
    if several && !segment.single && !needs_no_residual(&segment.plan)? {
        return builder.stored(node, segment);
    }
    Ok(segment)
}
