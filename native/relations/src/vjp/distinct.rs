//! DISTINCT, which is groups.

use datafusion_common::Result;
use datafusion_expr::{Aggregate, Distinct};
use std::sync::Arc;

use super::aggregate::aggregate;
use super::grouping_sets::first_rows;
use super::linearize::SegmentBuilder;
use super::nodes::Node;
use super::segment::Segment;
use crate::vocabulary::names::columns;

/// Linearizes DISTINCT as an aggregation by all columns, and DISTINCT ON as the first row of each group.
pub fn distinct(builder: &mut SegmentBuilder, node: Node, distinct: &Distinct) -> Result<Segment> {
    match distinct {
        Distinct::All(input) => {
            let keys = columns(input.schema());
            aggregate(builder, node, &Aggregate::try_new(Arc::clone(input), keys, vec![])?)
        }
        Distinct::On(on) => {
            let groups = builder.residuals.nodes.keep(first_rows(on)?);
            builder.segment(&groups)
        }
    }
}
