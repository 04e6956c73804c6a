//! Joins.

use datafusion_common::{Column, JoinType, NullEquality, Result, plan_err};
use datafusion_expr::logical_plan::JoinConstraint;
use datafusion_expr::{Expr, Join, LogicalPlan, Projection};
use std::sync::Arc;
use xql_autodiff::vocabulary::columns::is_volatile;

use super::expressions::inside;
use super::linearize::SegmentBuilder;
use super::nodes::Node;
use super::segment::{Segment, null_safe_keys};
use crate::vocabulary::names::{Names, columns};

/// Linearizes a join. A row of a side gets the sum of the cotangents of all rows of the join in which it is. A row of
/// the join that lacks a row of one side contributes nothing to that side.
pub fn join(builder: &mut SegmentBuilder, node: Node, join: &Join) -> Result<Segment> {
    let [mut left, mut right] = [builder.segment(&join.left)?, builder.segment(&join.right)?];
    let mut on = vec![];
    for (a, b) in &join.on {
        on.push((
            inside(builder, &mut left, a, join.left.schema())?,
            inside(builder, &mut right, b, join.right.schema())?,
        ));
    }
    let filter = join.filter.as_ref().map(|filter| condition(builder, filter, join, [&left, &right])).transpose()?;
    if matches!(join.join_type, JoinType::Left | JoinType::Full) {
        right.with_presence(builder.names)?;
    }
    if matches!(join.join_type, JoinType::Right | JoinType::Full) {
        left.with_presence(builder.names)?;
    }
    let volatile = filter.iter().chain(on.iter().flat_map(|(a, b)| [a, b])).any(is_volatile);
    let is_cross = join.filter.is_none() && join.on.is_empty() && join.join_type == JoinType::Inner;
    let single = left.single && right.single && is_cross;
    let nulls = match join.null_equality {
        NullEquality::NullEqualsNull if join.join_type == JoinType::Inner => {
            on = null_safe_keys(on, &left.plan, &right.plan)?;
            NullEquality::NullEqualsNothing
        }
        nulls => nulls,
    };
    let mut plan = LogicalPlan::Join(Join::try_new(
        Arc::new(std::mem::take(&mut left.plan)),
        Arc::new(std::mem::take(&mut right.plan)),
        on,
        filter,
        join.join_type,
        JoinConstraint::On,
        nulls,
        join.null_aware,
    )?);
    let segment = match join.join_type {
        JoinType::Inner | JoinType::Left | JoinType::Right | JoinType::Full => {
            left.take_in(&mut right);
            left
        }
        JoinType::LeftSemi | JoinType::LeftAnti => left,
        JoinType::RightSemi | JoinType::RightAnti => right,
        JoinType::LeftMark => {
            left.columns.push(rename_mark(&mut plan, builder.names)?);
            left
        }
        other => return plan_err!("gradients by row cannot pass through a join of type {other}"),
    };
    let segment = Segment { plan, single, ..segment };
    if volatile { builder.stored(node, segment) } else { Ok(segment) }
}

/// Gives the mark column of a mark join a new name, and returns it. It tells whether a row of the left side has a
/// match.
fn rename_mark(plan: &mut LogicalPlan, names: &mut Names) -> Result<Column> {
    let name = names.part("mark");
    let mut exprs = columns(plan.schema());
    let mark = exprs.pop().map(|mark| mark.alias(name.clone()));
    exprs.extend(mark);
    *plan = LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(std::mem::take(plan)))?);
    Ok(Column::new_unqualified(name))
}

/// Returns the condition of a join over the segments of both sides.
fn condition(builder: &mut SegmentBuilder, filter: &Expr, join: &Join, sides: [&Segment; 2]) -> Result<Expr> {
    let both = join.left.schema().join(join.right.schema())?;
    let columns = sides.iter().flat_map(|side| &side.columns).cloned().collect();
    let mut segment = Segment::constant(LogicalPlan::default(), columns, false);
    let filter = inside(builder, &mut segment, filter, &both)?;
    if !segment.leaves.is_empty() {
        return plan_err!("the condition of a join has a subquery that reads the variable. Put it in WHERE");
    }
    Ok(filter)
}
