//! The parts of a node's expressions that a projection below it can compute.

use datafusion_common::Result;
use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_expr::Expr;

/// Returns an expression with its scalar parts replaced: the arguments, conditions, partitions and orders of aggregates and
/// window functions, and else the whole of it. `replace` is told whether the part is evaluated for all rows. Columns,
/// constants and grouping sets, whose columns are named by what is inside, stay.
///
/// ```text
/// avg(jvp(f, w, 1) * y) FILTER (WHERE y > 0) AS d            jvp(f, w, 1) * y; y > 0
/// ```
pub fn replace_parts(expr: Expr, replace: &mut dyn FnMut(Expr, bool) -> Result<Expr>) -> Result<Expr> {
    replace_under(expr, true, replace)
}

fn replace_under(expr: Expr, always: bool, replace: &mut dyn FnMut(Expr, bool) -> Result<Expr>) -> Result<Expr> {
    let always = match &expr {
        Expr::Column(_) | Expr::OuterReferenceColumn(..) | Expr::Literal(..) | Expr::GroupingSet(_) => return Ok(expr),
        Expr::Alias(_) => always,
        Expr::AggregateFunction(call) => call.params.filter.is_none(),
        Expr::WindowFunction(call) => call.params.filter.is_none(),
        _ => return replace(expr, always),
    };
    let replaced = expr.map_children(|child| replace_under(child, always, replace).map(Transformed::yes))?;
    Ok(replaced.data)
}
