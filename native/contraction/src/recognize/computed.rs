//! Values that an input of a sum has computed.

use datafusion_common::Result;
use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_expr::expressions::{Column, Literal};
use datafusion_physical_plan::ExecutionPlan;
use datafusion_physical_plan::projection::ProjectionExec;
use std::sync::Arc;

/// An expression over the rows of a plan that reads what the plan has computed. Over `ProjectionExec: x, tanh(x) AS h`, the derivative
/// `1 - tanh(x) * tanh(x)` is `1 - h * h`.
pub fn read_from(plan: &Arc<dyn ExecutionPlan>, expr: Arc<dyn PhysicalExpr>) -> Result<Arc<dyn PhysicalExpr>> {
    let Some(projection) = plan.downcast_ref::<ProjectionExec>() else { return Ok(expr) };
    let schema = plan.schema();
    let column = |index: usize| Arc::new(Column::new(schema.field(index).name(), index)) as Arc<dyn PhysicalExpr>;
    let mut computed = vec![];
    for (index, of_rows) in projection.expr().iter().enumerate() {
        if let Some(of_columns) = over_columns(projection, &of_rows.expr, &column)? {
            computed.push((of_columns, column(index)));
        }
    }
    let read = expr.transform_down(|part| {
        match computed.iter().find(|(of_columns, _)| of_columns.as_ref() == part.as_ref()) {
            Some((_, column)) => Ok(Transformed::new(Arc::clone(column), true, TreeNodeRecursion::Jump)),
            None => Ok(Transformed::no(part)),
        }
    })?;
    Ok(read.data)
}

/// What a projection computes, over its own columns. None if it does not pass all on that this reads, or has it anew for each reader.
fn over_columns(
    projection: &ProjectionExec,
    expr: &Arc<dyn PhysicalExpr>,
    column: &impl Fn(usize) -> Arc<dyn PhysicalExpr>,
) -> Result<Option<Arc<dyn PhysicalExpr>>> {
    if expr.is::<Column>() || expr.is::<Literal>() || expr.exists(|part| Ok(part.is_volatile_node()))? {
        return Ok(None);
    }
    let mut are_passed_on = true;
    let of_columns = Arc::clone(expr).transform_down(|part| {
        let Some(read) = part.downcast_ref::<Column>() else { return Ok(Transformed::no(part)) };
        let is_it = |passed: &Column| passed.index() == read.index();
        let passed_on =
            projection.expr().iter().position(|other| other.expr.downcast_ref::<Column>().is_some_and(is_it));
        are_passed_on &= passed_on.is_some();
        Ok(passed_on.map_or(Transformed::no(part), |index| Transformed::yes(column(index))))
    })?;
    Ok(are_passed_on.then_some(of_columns.data))
}
