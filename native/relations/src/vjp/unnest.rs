//! UNNEST.

use datafusion_common::{Column, Result, plan_err};
use datafusion_expr::builder::unnest_with_options;
use datafusion_expr::{Expr, LogicalPlan, Projection, Unnest};
use std::sync::Arc;

use super::linearize::SegmentBuilder;
use super::segment::Segment;
use crate::vocabulary::names::with_columns;
use crate::vocabulary::origin::is_unnested;

/// Linearizes UNNEST. The elements of lists do not vary, and the other columns are repeated for each element.
pub fn unnest(builder: &mut SegmentBuilder, unnest: &Unnest) -> Result<Segment> {
    let mut segment = builder.segment(&unnest.input)?;
    // Under their own names behind the columns of the segment, all of which the node passes on.
    let mut lists = vec![];
    for (index, (table, field)) in unnest.input.schema().iter().enumerate() {
        if !is_unnested(unnest, index) {
            continue;
        }
        let list = segment.columns[index].clone();
        if segment.varying.contains(&list.name) {
            return plan_err!(
                "{} varies and comes out of a list or struct. xql-ffi does not differentiate lists and structs",
                field.name()
            );
        }
        lists.push(Expr::Column(list).alias_qualified(table.cloned(), field.name()));
    }
    let passed_on = segment.plan.schema().columns();
    let plan = with_columns(std::mem::take(&mut segment.plan), lists)?;
    let plan = unnest_with_options(plan, unnest.exec_columns.clone(), unnest.options.clone())?;
    let mut exprs: Vec<_> = passed_on.iter().cloned().map(Expr::Column).collect();
    let mut elements = vec![];
    for element in plan.schema().columns().split_off(passed_on.len()) {
        let name = builder.names.part(&element.name);
        exprs.push(Expr::Column(element).alias(name.clone()));
        elements.push(Column::new_unqualified(name));
    }
    let mut elements = elements.into_iter();
    let passed_on = std::mem::take(&mut segment.columns);
    for index in &unnest.dependency_indices {
        let own = if is_unnested(unnest, *index) { elements.next() } else { passed_on.get(*index).cloned() };
        segment.columns.extend(own);
    }
    for leaf in &mut segment.leaves {
        leaf.repeated = true;
    }
    let plan = LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(plan))?);
    Ok(Segment { plan, single: false, ..segment })
}
