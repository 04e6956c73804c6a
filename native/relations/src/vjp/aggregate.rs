//! Linearizes aggregations.

use datafusion_common::{DFSchema, Result, plan_err};
use datafusion_expr::expr::AggregateFunction;
use datafusion_expr::{Aggregate, Expr, LogicalPlan};
use std::sync::Arc;
use xql_autodiff::vocabulary::columns::is_volatile;
use xql_autodiff::vocabulary::messages::abbreviate;

use super::contraction::materialize_join_sides;
use super::expressions::computed;
use super::grouping_sets::split_grouping_sets;
use super::linearize::SegmentBuilder;
use super::nodes::Node;
use super::residuals::Members;
use super::segment::Segment;
use crate::aggregate_rules::quantiles::is_quantile;
use crate::jvp::VolatileColumns;
use crate::vocabulary::expressions::is_of_one_row;
use crate::vocabulary::names::Names;

/// Linearizes an aggregation. The groups are a residual. Each row of a group gets the cotangents of the group, times
/// the partial derivatives of the aggregates by that row.
pub fn aggregate(builder: &mut SegmentBuilder, node: Node, aggregate: &Aggregate) -> Result<Segment> {
    if let Some(union) = split_grouping_sets(aggregate)? {
        let union = builder.residuals.nodes.keep(union);
        return builder.segment(&union);
    }
    if aggregate.group_expr.iter().chain(&aggregate.aggr_expr).any(is_volatile) {
        let once = builder.residuals.nodes.keep(hoist_volatile(aggregate, builder.names)?);
        return builder.segment(&once);
    }
    let materialized = materialize_join_sides(builder, aggregate)?;
    let written = &aggregate.aggr_expr;
    let aggregate = match materialized.as_deref() {
        Some(LogicalPlan::Aggregate(aggregate)) => aggregate,
        _ => aggregate,
    };
    let schema = aggregate.input.schema();
    let mut below = builder.segment(&aggregate.input)?;
    if aggregate.aggr_expr.iter().any(is_of_one_row) {
        // `first_value` and the like choose a row by its place in an order. The sweep finds that row by its number.
        let width = below.columns.len();
        let residual = builder.rows(below)?;
        below = builder.residuals.reader(residual, width, builder.names)?;
    }
    let keys = computed(builder, &mut below, &aggregate.group_expr, schema)?;
    let keys = below.make_distinct(keys, builder.names)?;
    let mut calls = vec![];
    for (expr, written) in aggregate.aggr_expr.iter().zip(written) {
        let Expr::AggregateFunction(call) = expr.clone().unalias_nested().data else {
            return plan_err!("{} is not an aggregate", abbreviate(written));
        };
        calls.push((over_columns(builder, call, &mut below, schema)?, written.clone()));
    }
    let residual = builder.groups(below, keys, calls, Members::Any)?;
    builder.read_anew(node, residual, aggregate.schema.fields().len())
}

/// Rewrites an aggregate function to read only columns of a segment, and constants.
fn over_columns(
    builder: &mut SegmentBuilder,
    mut call: AggregateFunction,
    below: &mut Segment,
    schema: &DFSchema,
) -> Result<AggregateFunction> {
    let columns = computed(builder, below, &call.params.args, schema)?;
    // A constant stays one: nth_value and percentile_cont take no column for their second argument.
    let takes_constant = call.func.name() == "nth_value" || is_quantile(call.func.name());
    for (position, (argument, column)) in call.params.args.iter_mut().zip(columns).enumerate() {
        let stays = matches!(argument, Expr::Literal(..)) || takes_constant && position == 1;
        if !stays {
            *argument = Expr::Column(column);
        }
    }
    if let Some(filter) = &call.params.filter {
        let column = computed(builder, below, std::slice::from_ref(filter), schema)?.pop();
        call.params.filter = column.map(|column| Box::new(Expr::Column(column)));
    }
    for sort in &mut call.params.order_by {
        if let Some(column) = computed(builder, below, std::slice::from_ref(&sort.expr), schema)?.pop() {
            sort.expr = Expr::Column(column);
        }
    }
    Ok(call)
}

/// Computes volatile parts of an aggregation's keys and functions in a projection below, since the derivative must not
/// evaluate them again.
fn hoist_volatile(aggregate: &Aggregate, names: &mut Names) -> Result<LogicalPlan> {
    let mut draws = VolatileColumns::new(names);
    let keys = aggregate.group_expr.iter().cloned().map(|key| draws.ordering(key)).collect();
    let functions = aggregate.aggr_expr.iter().cloned().map(|function| draws.function(function));
    let functions = functions.collect::<Result<_>>()?;
    let input = draws.below(Arc::clone(&aggregate.input))?;
    Ok(LogicalPlan::Aggregate(Aggregate::try_new(input, keys, functions)?))
}
