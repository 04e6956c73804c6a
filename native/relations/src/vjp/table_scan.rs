//! Scans of the rows of variables, and of shared relations that depend on them.

use datafusion_common::Result;
use datafusion_expr::LogicalPlan;

use super::linearize::SegmentBuilder;
use super::nodes::Node;
use super::residuals::{Kind, needs_no_stage};
use super::segment::Segment;
use crate::shared_relation::SharedRelation;

/// The rows of a variable are a stage that nothing is below, and those of a shared relation are those of its plan.
pub fn table_scan(builder: &mut SegmentBuilder, node: Node, plan: &LogicalPlan) -> Result<Option<Segment>> {
    if let Some((number, stored)) = builder.variable(plan) {
        let stage = builder.stages.add(stored, Kind::Variable(number));
        return builder.read_anew(node, stage, plan.schema().fields().len()).map(Some);
    }
    let Some(relation) = SharedRelation::scanned_by(plan) else { return Ok(None) };
    if relation.is_common() {
        return common(builder, node, &relation).map(Some);
    }
    let (stage, width) = match builder.stages.of(node) {
        Some(known) => known,
        None => {
            let region = builder.region(relation.plan())?;
            let width = region.columns.len();
            let stage = builder.rows(region)?;
            builder.stages.know(node, stage, width);
            (stage, width)
        }
    };
    // The numbers of its rows are those of the stage that it becomes.
    let read = if relation.is_numbered() {
        builder.stages.numbered(stage, width, builder.names)
    } else {
        builder.stages.reader(stage, width, builder.names)
    };
    read.map(Some)
}

/// A CTE or view that several places read.
fn common(builder: &mut SegmentBuilder, node: Node, relation: &SharedRelation) -> Result<Segment> {
    if let Some((stage, width)) = builder.stages.of(node) {
        let region = builder.stages.reader(stage, width, builder.names)?;
        return Ok(Segment { single: builder.stages.is_single(node), ..region });
    }
    let region = builder.for_readers(node, |builder| builder.region(relation.plan()))?;
    if needs_no_stage(&region.plan)? {
        return Ok(region);
    }
    let single = region.single;
    let region = builder.stored(node, region)?;
    if single {
        builder.stages.know_single(node);
    }
    Ok(Segment { single, ..region })
}
