//! The frames of window functions.

use arrow::datatypes::DataType;
use datafusion_common::{ExprSchema, Result, ScalarValue};
use datafusion_expr::expr::{Sort, WindowFunction, WindowFunctionParams};
use datafusion_expr::{
    Expr, ExprSchemable, LogicalPlan, Operator, Window, WindowFrame, WindowFrameBound, WindowFrameUnits,
    WindowFunctionDefinition, binary_expr, lit,
};
use std::sync::Arc;
use xql_autodiff::vocabulary::types::is_float;

use crate::vocabulary::expressions::unaliased;

/// More rows than a partition has, and so few that the number of a row plus these is one too. In a plan that has been
/// differentiated it may stand for `UNBOUNDED`.
pub const MORE_ROWS_THAN_ANY: u64 = 1_000_000_000_000_000;

/// Returns whether it is an aggregate over whole partitions.
pub fn is_over_partition(function: &WindowFunction) -> bool {
    matches!(function.fun, WindowFunctionDefinition::AggregateUDF(_)) && is_whole(&function.params)
}

/// Returns whether the frame of every row is its partition.
pub fn is_whole(params: &WindowFunctionParams) -> bool {
    let frame = &params.window_frame;
    let all = |rows: &ScalarValue| {
        rows.is_null()
            || frame.units == WindowFrameUnits::Rows && *rows == ScalarValue::UInt64(Some(MORE_ROWS_THAN_ANY))
    };
    let has_all_equal = params.order_by.is_empty() && frame.units != WindowFrameUnits::Rows;
    let from_first = match &frame.start_bound {
        WindowFrameBound::Preceding(rows) => all(rows),
        WindowFrameBound::CurrentRow => has_all_equal,
        WindowFrameBound::Following(_) => false,
    };
    let to_last = match &frame.end_bound {
        WindowFrameBound::Following(rows) => all(rows),
        WindowFrameBound::CurrentRow => has_all_equal,
        WindowFrameBound::Preceding(_) => false,
    };
    from_first && to_last
}

/// Returns the distance from a row to its frame, and in which direction of the order; nothing if the row is in its frame.
fn gap(params: &WindowFunctionParams) -> Result<Option<(&ScalarValue, Operator)>> {
    let frame = &params.window_frame;
    let (distance, away) = match (&frame.start_bound, &frame.end_bound) {
        (WindowFrameBound::Following(distance), _) => (distance, Operator::Plus),
        (_, WindowFrameBound::Preceding(distance)) => (distance, Operator::Minus),
        _ => return Ok(None),
    };
    let is_zero = !distance.is_null() && *distance == ScalarValue::new_zero(&distance.data_type())?;
    Ok((!is_zero).then_some((distance, away)))
}

/// Returns whether every row is in its own frame.
pub fn has_own_row(params: &WindowFunctionParams) -> Result<bool> {
    Ok(gap(params)?.is_none())
}

/// Returns whether a row is in its own frame; nothing if each is.
///
/// ```text
/// ROWS BETWEEN 2 PRECEDING AND CURRENT ROW                each is
/// ROWS BETWEEN 2 PRECEDING AND 1 PRECEDING                none is
/// ORDER BY t RANGE BETWEEN 1 FOLLOWING AND 2 FOLLOWING    those whose t is NULL are, or too large for t + 1 to differ
/// ```
pub fn is_in_own_frame(params: &WindowFunctionParams, schema: &impl ExprSchema) -> Result<Option<Expr>> {
    let Some((distance, away)) = gap(params)? else { return Ok(None) };
    let units = params.window_frame.units;
    let (WindowFrameUnits::Range, [Sort { expr: key, asc, .. }]) = (units, params.order_by.as_slice()) else {
        return Ok(Some(lit(false)));
    };
    let is_null = key.clone().is_null();
    if !is_float(&key.get_type(schema)?) {
        return Ok(Some(is_null));
    }
    let away = match (away, asc) {
        (Operator::Plus, true) | (Operator::Minus, false) => Operator::Plus,
        _ => Operator::Minus,
    };
    let distant = binary_expr(key.clone(), away, Expr::Literal(distance.clone(), None));
    Ok(Some(is_null.or(distant.eq(key.clone()))))
}

/// Returns a frame of rows by their numbers, as the frame by the distances of these: the rows that it has in a part of a partition
/// are those that the frame has of this part.
///
/// ```text
/// ORDER BY t ROWS BETWEEN 1 PRECEDING AND CURRENT ROW  ->  ORDER BY number RANGE BETWEEN 1 PRECEDING AND CURRENT ROW
/// ```
pub fn by_distance(frame: &WindowFrame) -> Result<WindowFrame> {
    let bound = |bound: &WindowFrameBound| -> Result<WindowFrameBound> {
        Ok(match bound {
            WindowFrameBound::Preceding(rows) => WindowFrameBound::Preceding(rows.cast_to(&DataType::Int64)?),
            WindowFrameBound::Following(rows) => WindowFrameBound::Following(rows.cast_to(&DataType::Int64)?),
            WindowFrameBound::CurrentRow => WindowFrameBound::CurrentRow,
        })
    };
    Ok(WindowFrame::new_bounds(WindowFrameUnits::Range, bound(&frame.start_bound)?, bound(&frame.end_bound)?))
}

/// Returns a node for each partition and order that window functions have.
pub fn with_windows(plan: LogicalPlan, functions: Vec<Expr>) -> Result<LogicalPlan> {
    let mut nodes: Vec<Vec<Expr>> = vec![];
    let rows = |function: &Expr| match unaliased(function) {
        Expr::WindowFunction(call) => Some((call.params.partition_by.clone(), call.params.order_by.clone())),
        _ => None,
    };
    for function in functions {
        match nodes.iter_mut().find(|node| node.first().and_then(rows) == rows(&function)) {
            Some(node) => node.push(function),
            None => nodes.push(vec![function]),
        }
    }
    nodes.into_iter().try_fold(plan, |plan, node| Ok(LogicalPlan::Window(Window::try_new(node, Arc::new(plan))?)))
}
