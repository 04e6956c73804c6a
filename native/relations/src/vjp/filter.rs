//! Nodes that keep rows of their input, or order them, and have its columns: filters, sorts and limits.

use datafusion_common::Result;
use datafusion_common::tree_node::Transformed;
use datafusion_expr::logical_plan::Sort;
use datafusion_expr::{Filter, Limit, LogicalPlan};
use std::sync::Arc;
use xql_autodiff::vocabulary::columns::is_volatile;

use super::contraction::push_filter_into_join;
use super::expressions::inside;
use super::linearize::SegmentBuilder;
use super::nodes::Node;
use super::segment::Segment;

/// Linearizes a filter: the rows that pass get the cotangents. The condition counts as constant.
pub fn filter(builder: &mut SegmentBuilder, node: Node, filter: &Filter) -> Result<Segment> {
    let mut segment = builder.segment(&filter.input)?;
    let predicate = inside(builder, &mut segment, &filter.predicate, filter.input.schema())?;
    let asked = match segment.plan {
        plan if builder.contracts => push_filter_into_join(plan, &predicate)?,
        plan => Transformed::no(plan),
    };
    segment.plan = match asked.transformed {
        true => asked.data,
        false => LogicalPlan::Filter(Filter::try_new(predicate.clone(), Arc::new(asked.data))?),
    };
    segment.single = false;
    if is_volatile(&predicate) { builder.stored(node, segment) } else { Ok(segment) }
}

/// Linearizes a sort. With a limit, the rows are materialized: a second execution might order equal rows differently
/// and pick others.
pub fn sort(builder: &mut SegmentBuilder, node: Node, sort: &Sort) -> Result<Segment> {
    let Sort { expr, input, fetch } = sort;
    let mut segment = builder.segment(input)?;
    let mut order = vec![];
    for sort in expr {
        order.push(sort.with_expr(inside(builder, &mut segment, &sort.expr, input.schema())?));
    }
    segment.plan = LogicalPlan::Sort(Sort { expr: order, input: Arc::new(segment.plan), fetch: *fetch });
    segment.single = segment.single && fetch.is_none();
    let keeps_some = fetch.is_some() || expr.iter().any(|sort| is_volatile(&sort.expr));
    if keeps_some { builder.stored(node, segment) } else { Ok(segment) }
}

/// Linearizes a limit. The rows are materialized, since a second execution might pick others.
pub fn limit(builder: &mut SegmentBuilder, node: Node, limit: &Limit) -> Result<Segment> {
    let mut segment = builder.segment(&limit.input)?;
    let input = Arc::new(segment.plan);
    segment.plan = LogicalPlan::Limit(Limit { skip: limit.skip.clone(), fetch: limit.fetch.clone(), input });
    segment.single = false;
    builder.stored(node, segment)
}
