//! Rows in one order only, so that they are the same each time that a relation is computed.

use arrow::datatypes::FieldRef;
use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_common::{Column, Result, plan_err};
use datafusion_expr::{Expr, LogicalPlan, SortExpr, WindowFrameUnits};

use super::rounding::is_rounded;
use crate::vocabulary::expressions::unaliased;
use crate::vocabulary::markers::marked;

/// The columns by which the rows of a plan are in one order only, the first first: rows that are equal in these are one as good as
/// the other.
///
/// # Errors
/// If rows cannot be ordered by one of them.
pub fn total_order(plan: &LogicalPlan) -> Result<Vec<usize>> {
    let mut keys = vec![];
    for index in distinguishing(plan) {
        let field = plan.schema().field(index);
        check_order(field)?;
        // What is summed up may differ in its last digit the next time.
        keys.push((field.data_type().is_floating(), is_rounded(plan, index)?, index));
    }
    keys.sort_unstable();
    Ok(keys.into_iter().map(|(_, _, index)| index).collect())
}

/// The columns in which rows differ that differ at all: those that are not computed from others of them.
///
/// DataFusion 54 cannot always order by both: `SanityCheckPlan ... does not satisfy order requirements`.
fn distinguishing(plan: &LogicalPlan) -> Vec<usize> {
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
///
/// # Errors
/// If it is one.
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

/// What orders the rows of a plan after `keys`, so that there is one order of them only.
///
/// # Errors
/// If rows cannot be ordered by one of its columns.
pub fn ordered_further(mut keys: Vec<SortExpr>, input: &LogicalPlan) -> Result<Vec<SortExpr>> {
    for index in total_order(input)? {
        let column = Expr::Column(Column::from(input.schema().qualified_field(index)));
        if !keys.iter().any(|key| key.expr == column) {
            keys.push(column.sort(true, false));
        }
    }
    Ok(keys)
}

/// An expression over a plan whose functions depend on the order of rows in one order of them only.
///
/// # Errors
/// If rows cannot be ordered by one of the columns of the plan.
pub fn totally_ordered(expr: Expr, input: &LogicalPlan) -> Result<Transformed<Expr>> {
    /// These have no frame.
    const PLACES: [&str; 4] = ["row_number", "ntile", "lag", "lead"];
    const AGGREGATES: [&str; 4] = ["first_value", "last_value", "nth_value", "array_agg"];
    expr.transform_up(|mut part| {
        match &mut part {
            Expr::WindowFunction(call) => {
                let frame = &call.params.window_frame;
                let is_whole = frame.start_bound.is_unbounded() && frame.end_bound.is_unbounded();
                let moves = frame.units == WindowFrameUnits::Rows && !is_whole;
                if PLACES.contains(&call.fun.name()) || moves && !RANKS.contains(&call.fun.name()) {
                    call.params.order_by = ordered_further(std::mem::take(&mut call.params.order_by), input)?;
                    return Ok(Transformed::yes(part));
                }
            }
            Expr::AggregateFunction(call) if AGGREGATES.contains(&call.func.name()) => {
                call.params.order_by = ordered_further(std::mem::take(&mut call.params.order_by), input)?;
                return Ok(Transformed::yes(part));
            }
            _ => {}
        }
        Ok(Transformed::no(part))
    })
}

/// Functions that count equal rows as one.
const RANKS: [&str; 4] = ["rank", "dense_rank", "percent_rank", "cume_dist"];

/// Refuses a relation that has other rows each time it is computed.
///
/// # Errors
/// If it is one.
pub fn check_repeatable(plan: &LogicalPlan) -> Result<()> {
    let mut found = None;
    plan.apply_with_subqueries(|node| {
        for expr in node.expressions() {
            if is_volatile(&expr)? {
                found = Some(expr.to_string());
            }
        }
        Ok(if found.is_some() { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    match found {
        Some(volatile) => plan_err!(
            "the derivative reads a relation several times that {volatile} makes another one each time: \
             keep its rows in a table first"
        ),
        None => Ok(()),
    }
}

/// Whether an expression may be another value each time, which what says that a value may be NULL is not.
fn is_volatile(expr: &Expr) -> Result<bool> {
    let mut found = false;
    expr.apply(|part| {
        if let Some(value) = marked(part) {
            found |= is_volatile(value)?;
            return Ok(TreeNodeRecursion::Jump);
        }
        found |= part.is_volatile_node();
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}
