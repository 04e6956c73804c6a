//! Scans of the rows of variables, and of shared relations that depend on them.

use datafusion_common::Result;
use datafusion_expr::LogicalPlan;
use std::sync::Arc;

use super::linearize::SegmentBuilder;
use super::nodes::Node;
use super::residuals::{ResidualKind, needs_no_residual};
use super::segment::Segment;
use crate::shared_relation::SharedRelation;

/// Linearizes a scan. The rows of a variable are a residual with nothing below it. A shared relation is linearized by
/// its plan.
pub fn table_scan(builder: &mut SegmentBuilder, node: Node, plan: &LogicalPlan) -> Result<Option<Segment>> {
    if let Some((number, stored)) = builder.variable(plan) {
        let residual = builder.residuals.add(stored, ResidualKind::Variable(number));
        return builder.read_anew(node, residual, plan.schema().fields().len()).map(Some);
    }
    let Some(relation) = SharedRelation::scanned_by(plan) else { return Ok(None) };
    if relation.is_common() {
        return common(builder, node, &relation).map(Some);
    }
    let (residual, width) = match builder.residuals.residual_of(node) {
        Some(known) => known,
        None => {
            let segment = builder.segment(relation.plan())?;
            let width = segment.columns.len();
            let residual = builder.rows(segment)?;
            builder.residuals.recompute(node, Arc::clone(&relation), (residual, width));
            (residual, width)
        }
    };
    // The numbers of its rows are those of the residual that it becomes.
    let read = if relation.is_numbered() {
        builder.residuals.numbered_reader(residual, width, builder.names)
    } else {
        builder.residuals.reader(residual, width, builder.names)
    };
    read.map(Some)
}

/// Returns a CTE or view that several places read.
fn common(builder: &mut SegmentBuilder, node: Node, relation: &SharedRelation) -> Result<Segment> {
    if let Some((residual, width)) = builder.residuals.residual_of(node) {
        let segment = builder.residuals.reader(residual, width, builder.names)?;
        return Ok(Segment { single: builder.residuals.is_single(node), ..segment });
    }
    let before = builder.residuals.all().len();
    let mut segment = builder.for_readers(node, |builder| builder.segment(relation.plan()))?;
    if !needs_no_residual(&segment.plan)? {
        let single = segment.single;
        segment = Segment { single, ..builder.stored(node, segment)? };
        if single {
            builder.residuals.know_single(node);
        }
    }
    // What draws becomes a residual, which the next reader finds.
    if let Some(draws) = relation.shared_draws().filter(|_| builder.residuals.all().len() > before) {
        draws.write_out();
    }
    Ok(segment)
}
