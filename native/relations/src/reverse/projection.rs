//! Projections.

use datafusion_common::Result;
use datafusion_expr::Projection;
use xql_autodiff::vocabulary::columns::is_volatile;

use super::builder::RegionBuilder;
use super::expressions::computed;
use super::nodes::Node;
use super::region::Region;

/// A row has the columns that are computed from it, through which cotangents pass by the sweep of the calculus.
pub fn projection(builder: &mut RegionBuilder, node: Node, projection: &Projection) -> Result<Region> {
    let Projection { expr, input, .. } = projection;
    let mut region = builder.region(input)?;
    region.columns = computed(builder, &mut region, expr, input.schema())?;
    if expr.iter().any(is_volatile) { builder.stored(node, region) } else { Ok(region) }
}
