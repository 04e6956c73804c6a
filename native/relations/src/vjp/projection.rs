//! Projections.

use datafusion_common::Result;
use datafusion_expr::Projection;
use xql_autodiff::vocabulary::columns::is_volatile;

use super::expressions::computed;
use super::linearize::SegmentBuilder;
use super::nodes::Node;
use super::segment::Segment;

/// Linearizes a projection: a row has the columns that are computed from it, through which cotangents pass by the sweep
/// of the calculus.
pub fn projection(builder: &mut SegmentBuilder, node: Node, projection: &Projection) -> Result<Segment> {
    let Projection { expr, input, .. } = projection;
    let mut segment = builder.segment(input)?;
    segment.columns = computed(builder, &mut segment, expr, input.schema())?;
    if expr.iter().any(is_volatile) { builder.stored(node, segment) } else { Ok(segment) }
}
