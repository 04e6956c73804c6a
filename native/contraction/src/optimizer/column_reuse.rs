//! Reuse of columns that an input has computed.

use datafusion_common::Result;
use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_expr::expressions::{Column, Literal};
use datafusion_physical_plan::ExecutionPlan;
use datafusion_physical_plan::projection::ProjectionExec;
use std::sync::Arc;

/// Rewrites an expression over the rows of a plan to read what the plan has computed. Over `ProjectionExec: x, tanh(x) AS h`, the
/// derivative `1 - tanh(x) * tanh(x)` becomes `1 - h * h`.
pub fn reuse_columns(plan: &Arc<dyn ExecutionPlan>, expr: Arc<dyn PhysicalExpr>) -> Result<Arc<dyn PhysicalExpr>> {
    let Some(projection) = plan.downcast_ref::<ProjectionExec>() else { return Ok(expr) };
    let schema = plan.schema();
    let column = |index: usize| Arc::new(Column::new(schema.field(index).name(), index)) as Arc<dyn PhysicalExpr>;
    let mut computed = vec![];
    for (index, output) in projection.expr().iter().enumerate() {
        if let Some(over_columns) = over_output(projection, &output.expr, &column)? {
            computed.push((over_columns, column(index)));
        }
    }
    let rewritten = expr.transform_down(|part| {
        match computed.iter().find(|(over_columns, _)| over_columns.as_ref() == part.as_ref()) {
            Some((_, column)) => Ok(Transformed::new(Arc::clone(column), true, TreeNodeRecursion::Jump)),
            None => Ok(Transformed::no(part)),
        }
    })?;
    Ok(rewritten.data)
}

/// Rewrites an expression of a projection over its output columns. Returns `None` if it reads a column that is not among them, is trivial,
/// or is volatile.
fn over_output(
    projection: &ProjectionExec,
    expr: &Arc<dyn PhysicalExpr>,
    column: &impl Fn(usize) -> Arc<dyn PhysicalExpr>,
) -> Result<Option<Arc<dyn PhysicalExpr>>> {
    if expr.is::<Column>() || expr.is::<Literal>() || expr.exists(|part| Ok(part.is_volatile_node()))? {
        return Ok(None);
    }
    let mut is_available = true;
    let over_columns = Arc::clone(expr).transform_down(|part| {
        let Some(read) = part.downcast_ref::<Column>() else { return Ok(Transformed::no(part)) };
        let is_same = |passed: &Column| passed.index() == read.index();
        let output =
            projection.expr().iter().position(|other| other.expr.downcast_ref::<Column>().is_some_and(is_same));
        is_available &= output.is_some();
        Ok(output.map_or(Transformed::no(part), |index| Transformed::yes(column(index))))
    })?;
    Ok(is_available.then_some(over_columns.data))
}
