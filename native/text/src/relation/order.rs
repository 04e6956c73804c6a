//! Rows in one order only, so that they are the same each time that a text is computed.

use arrow::datatypes::FieldRef;
use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_common::{Column, DataFusionError, Result, plan_err};
use datafusion_expr::expr::Sort as SortExpr;
use datafusion_expr::{Expr, LogicalPlan, WindowFrameUnits};

use crate::expr::unaliased;

/// The columns in which rows differ that differ at all: those that are not computed from others of them.
///
/// DataFusion 54 cannot always order by both: `SanityCheckPlan ... does not satisfy order requirements`.
pub fn distinguishing(plan: &LogicalPlan) -> Vec<usize> {
    let all = 0..plan.schema().fields().len();
    match plan {
        LogicalPlan::SubqueryAlias(alias) => distinguishing(&alias.input),
        LogicalPlan::Projection(node) => {
            let is_passed = |column: &Column| {
                node.expr.iter().any(|expr| matches!(unaliased(expr), Expr::Column(passed) if passed == column))
            };
            let is_computed = |expr: &Expr| {
                let is_query =
                    |part: &Expr| matches!(part, Expr::ScalarSubquery(_) | Expr::Exists(_) | Expr::InSubquery(_));
                !matches!(unaliased(expr), Expr::Column(_))
                    && !expr.is_volatile()
                    && !expr.exists(|part| Ok(is_query(part))).unwrap_or(true)
                    && expr.column_refs().into_iter().all(is_passed)
            };
            all.filter(|index| !is_computed(&node.expr[*index])).collect()
        }
        _ => all.collect(),
    }
}

/// Refuses a column by which rows cannot be ordered.
pub fn check_order(field: &FieldRef) -> Result<()> {
    if field.data_type().is_nested() {
        return plan_err!(
            "the derivative orders rows by all of their columns, and {} is of the type {}, which has no order",
            field.name(),
            field.data_type()
        );
    }
    Ok(())
}

/// A function that depends on the order of rows, in one order of them only.
pub fn totally_ordered(expr: &Expr, input: &LogicalPlan) -> Result<Expr> {
    /// These have no frame.
    const PLACES: [&str; 4] = ["row_number", "ntile", "lag", "lead"];
    const AGGREGATES: [&str; 4] = ["first_value", "last_value", "nth_value", "array_agg"];
    let extended = |order_by: &mut Vec<SortExpr>| {
        for index in distinguishing(input) {
            check_order(input.schema().field(index))?;
            let column = Expr::Column(Column::from(input.schema().qualified_field(index)));
            if !order_by.iter().any(|key| key.expr == column) {
                order_by.push(column.sort(true, false));
            }
        }
        Ok::<_, DataFusionError>(())
    };
    let ordered = expr.clone().transform_up(|part| {
        let mut part = part;
        match &mut part {
            Expr::WindowFunction(call) => {
                let frame = &call.params.window_frame;
                let is_whole = frame.start_bound.is_unbounded() && frame.end_bound.is_unbounded();
                let moves = frame.units == WindowFrameUnits::Rows && !is_whole;
                if PLACES.contains(&call.fun.name()) || moves && !RANKS.contains(&call.fun.name()) {
                    extended(&mut call.params.order_by)?;
                }
            }
            Expr::AggregateFunction(call) if AGGREGATES.contains(&call.func.name()) => {
                extended(&mut call.params.order_by)?;
            }
            _ => return Ok(Transformed::no(part)),
        }
        Ok(Transformed::yes(part))
    })?;
    Ok(ordered.data)
}

/// Functions that count equal rows as one.
const RANKS: [&str; 4] = ["rank", "dense_rank", "percent_rank", "cume_dist"];

/// What in a plan gives other rows each time it is computed.
pub fn volatile_in(plan: &LogicalPlan) -> Result<Option<String>> {
    let mut found = None;
    plan.apply_with_subqueries(|node| {
        for expr in node.expressions() {
            if expr.is_volatile() {
                found = Some(expr.to_string());
            }
        }
        Ok(if found.is_some() { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}
