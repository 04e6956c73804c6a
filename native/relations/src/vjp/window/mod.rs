//! Window functions by the numbers of rows.
//!
//! A row's frame is a range of row numbers. Its sum is a column of the residual with the rows, and what carries cotangents back sums those of
//! the frames that a row is in (`frame_sums`). Another aggregate over it is one over the rows of a join of the residual with itself, as sums
//! are where the plan has to have functions of DataFusion alone, and `lag` is the row whose number is the `lag` of the numbers.
//!
//! ```text
//! Window: sum(x) OVER (PARTITION BY p ORDER BY t)
//!   rows
//! ->
//! Left Join: i.row = g.row
//!   rows i
//!   Aggregate: i.row, sum(j.x)
//!     Join: i.p IS NOT DISTINCT FROM j.p, j.number BETWEEN i.low AND i.high
//!       rows i
//!       rows j
//! ```

mod functions;
mod numbers;
mod values;

use datafusion_common::Result;
use datafusion_expr::{Expr, ExprSchemable, LogicalPlan, Window};
use std::sync::Arc;
use xql_autodiff::vocabulary::columns::is_volatile;
use xql_autodiff::vocabulary::types::can_vary;

use super::linearize::SegmentBuilder;
use super::nodes::Node;
use super::residuals::needs_no_residual;
use super::segment::Segment;
use crate::aggregate_rules::frames::is_over_partition;
use crate::jvp::VolatileColumns;
use crate::vocabulary::names::{Names, restore};
use functions::{WindowCall, functions};
use numbers::{Numbered, Output};
use values::{Frames, Partition, aggregate, over_partition};

/// Windows are sums beside the rows of a residual, or joins of these with themselves, but for those over whole partitions of rows that are cheap to read again:
/// these need not be stored beside their numbers.
pub fn window(builder: &mut SegmentBuilder, node: Node, window: &Window) -> Result<Segment> {
    if window.window_expr.iter().any(is_volatile) {
        let once = builder.residuals.nodes.keep(hoist_volatile(window, builder.names)?);
        return builder.segment(&once);
    }
    let (mut segment, functions) = functions(builder, window)?;
    let mut varies = vec![];
    for WindowCall { call, .. } in &functions {
        let mut argument_varies = false;
        for argument in &call.params.args {
            argument_varies |= segment.varies(argument)?;
        }
        let data_type = Expr::from(call.clone()).get_type(segment.plan.schema())?;
        varies.push(argument_varies && can_vary(&data_type));
    }
    let by_partition =
        functions.iter().zip(&varies).all(|(function, varies)| *varies && is_over_partition(&function.call));
    if by_partition && needs_no_residual(&segment.plan)? {
        return by_groups(builder, window, segment, &functions);
    }
    let width = segment.columns.len();
    let (outputs, sums) = Numbered { builder: &mut *builder, segment: &mut segment }.outputs(functions, &varies)?;
    if !varies.contains(&true) {
        return builder.stored(node, segment);
    }
    let total = segment.columns.len();
    let residual = builder.rows_with(segment, sums)?;
    let mut outer = builder.residuals.numbered_reader(residual, total, builder.names)?;
    let mut columns: Vec<_> = outer.columns[..width].to_vec();
    let frames = Frames { residual, total };
    for output in outputs {
        columns.push(match output {
            Output::Column(position) => outer.columns[position].clone(),
            Output::Varying(varying) => frames.value(builder, &mut outer, &varying)?,
        });
    }
    outer.columns = columns;
    Ok(outer)
}

/// Functions over whole partitions as groups of the input, which is read again for each.
fn by_groups(
    builder: &mut SegmentBuilder,
    window: &Window,
    mut segment: Segment,
    of: &[WindowCall],
) -> Result<Segment> {
    let mut columns = segment.columns.clone();
    for (number, WindowCall { call, original }) in of.iter().enumerate() {
        let (over, mut again) = functions(builder, window)?;
        let WindowCall { call: by, .. } = again.swap_remove(number);
        let on = call.params.partition_by.iter().cloned().zip(by.params.partition_by.clone()).collect();
        let by = aggregate(&by, by.params.args.clone(), by.params.filter.clone());
        columns.push(over_partition(builder, &mut segment, Partition { over, on }, by, original)?);
    }
    segment.columns = columns;
    Ok(segment)
}

/// Windows over what their functions draw, which a derivative must not draw again.
fn hoist_volatile(window: &Window, names: &mut Names) -> Result<LogicalPlan> {
    let mut draws = VolatileColumns::new(names);
    let functions = window.window_expr.iter().cloned().map(|function| draws.function(function));
    let functions = functions.collect::<Result<_>>()?;
    let once = Window::try_new(functions, draws.below(Arc::clone(&window.input))?)?;
    restore(LogicalPlan::Window(once), &window.schema)
}
