//! Window functions over the segment of their input.

use datafusion_common::{DFSchema, Result, plan_err};
use datafusion_expr::expr::WindowFunction;
use datafusion_expr::{Expr, Window, WindowFunctionDefinition};
use std::slice::from_ref;
use xql_autodiff::vocabulary::messages::abbreviate;

use crate::aggregate_rules::stays;
use crate::vjp::expressions::computed;
use crate::vjp::linearize::SegmentBuilder;
use crate::vjp::segment::Segment;

/// A window function over columns of a segment, and the call as the user wrote it.
pub struct WindowCall<'w> {
    /// The function over the columns.
    pub call: WindowFunction,
    /// The call as the user wrote it.
    pub original: &'w Expr,
}

/// Returns the segment of the input of windows, with all that they read, and the windows over it.
pub fn functions<'w>(builder: &mut SegmentBuilder, window: &'w Window) -> Result<(Segment, Vec<WindowCall<'w>>)> {
    let mut segment = builder.segment(&window.input)?;
    let mut functions = vec![];
    for original in &window.window_expr {
        let Expr::WindowFunction(call) = original.clone().unalias_nested().data else {
            return plan_err!("{} is not a window function", abbreviate(original));
        };
        let default = call.params.args.get(2);
        if is_of_one_row(&call) && default.is_some_and(|default| !stays(default, &call.fun)) {
            return plan_err!(
                "DataFusion takes only a constant as the default of {}. Use coalesce({}(x) OVER (...), default)",
                abbreviate(original),
                call.fun.name()
            );
        }
        let call = over_columns(builder, *call, &mut segment, window.input.schema())?;
        functions.push(WindowCall { call, original });
    }
    Ok((segment, functions))
}

/// Returns a window function that reads columns of a segment only, and constants.
fn over_columns(
    builder: &mut SegmentBuilder,
    mut function: WindowFunction,
    segment: &mut Segment,
    schema: &DFSchema,
) -> Result<WindowFunction> {
    let params = &mut function.params;
    let arguments = params.args.iter_mut().filter(|argument| !stays(argument, &function.fun));
    let read = arguments.chain(&mut params.partition_by);
    let read = read.chain(params.order_by.iter_mut().map(|sort| &mut sort.expr));
    for expr in read.chain(params.filter.iter_mut().map(Box::as_mut)) {
        if !matches!(expr, Expr::Literal(..))
            && let Some(column) = computed(builder, segment, from_ref(expr), schema)?.pop()
        {
            *expr = Expr::Column(column);
        }
    }
    Ok(function)
}

/// Returns whether a function gives the value of one row, which it chooses by its place.
pub fn is_of_one_row(function: &WindowFunction) -> bool {
    matches!(function.fun.name(), "first_value" | "last_value" | "nth_value" | "lag" | "lead")
        && matches!(function.fun, WindowFunctionDefinition::WindowUDF(_))
}
