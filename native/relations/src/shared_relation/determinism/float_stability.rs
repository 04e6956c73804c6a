//! Finds rounded values: a sum of floats may differ in its last digit when it is computed again, in another order.

use datafusion_common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion_common::{Column, Result, plan_err};
use datafusion_expr::{Expr, LogicalPlan, Operator};

use crate::shared_relation::relation::SharedRelation;
use crate::vocabulary::names::is_added;
use crate::vocabulary::nodes::non_query_nodes;

/// Refuses a plan of a derivative that finds rows by a value whose last digits may differ the next time.
///
/// # Errors
/// If it is one.
pub fn check_found_again(plan: &LogicalPlan) -> Result<()> {
    plan.apply_with_subqueries(|node| {
        match node {
            LogicalPlan::Filter(filter) => check_condition(&filter.predicate, &[&filter.input])?,
            LogicalPlan::Join(join) => {
                let equal = join.on.iter().map(|(left, right)| left.clone().eq(right.clone()));
                for condition in equal.chain(join.filter.clone()) {
                    check_condition(&condition, &[&join.left, &join.right])?;
                }
            }
            LogicalPlan::Projection(_)
            | LogicalPlan::Window(_)
            | LogicalPlan::Aggregate(_)
            | LogicalPlan::Sort(_)
            | LogicalPlan::Repartition(_)
            | LogicalPlan::Union(_)
            | LogicalPlan::TableScan(_)
            | LogicalPlan::EmptyRelation(_)
            | LogicalPlan::Subquery(_)
            | LogicalPlan::SubqueryAlias(_)
            | LogicalPlan::Limit(_)
            | LogicalPlan::Values(_)
            | LogicalPlan::Distinct(_)
            | LogicalPlan::Unnest(_)
            | LogicalPlan::RecursiveQuery(_)
            | LogicalPlan::Extension(_)
            | non_query_nodes!() => {}
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

fn check_condition(expr: &Expr, inputs: &[&LogicalPlan]) -> Result<()> {
    let is_rounded = |part: &Expr| match part {
        Expr::Column(column) if is_added(&column.name) => is_rounded_in(column, inputs),
        _ => Ok(false),
    };
    let compares = expr.exists(|part| match part {
        Expr::BinaryExpr(binary) if matches!(binary.op, Operator::Eq | Operator::IsNotDistinctFrom) => {
            Ok(is_rounded(&binary.left)? || is_rounded(&binary.right)?)
        }
        _ => Ok(false),
    })?;
    if compares {
        return plan_err!(
            "the derivative finds the rows of a minimum, a maximum or a group again by the value of a sum, whose last digit may be \
             another when it is computed again: keep the sums in a table first"
        );
    }
    Ok(())
}

/// Returns whether a column of one of these plans is a sum of floats, or computed from one: rounded, and in an order of the rows
/// that is not known.
#[recursive::recursive]
fn is_rounded_in(column: &Column, plans: &[&LogicalPlan]) -> Result<bool> {
    for plan in plans {
        if let Some(index) = plan.schema().maybe_index_of_column(column) {
            return is_rounded(plan, index);
        }
    }
    Ok(false)
}

/// Returns whether the column of a plan at this position is rounded.
pub fn is_rounded(plan: &LogicalPlan, index: usize) -> Result<bool> {
    let is_float = plan.schema().field(index).data_type().is_floating();
    let computed = |expr: &Expr, input: &LogicalPlan| is_rounded_as(expr, input, is_float);
    match plan {
        LogicalPlan::Projection(node) => computed(&node.expr[index], &node.input),
        LogicalPlan::Aggregate(node) => {
            let exprs: Vec<_> = node.group_expr.iter().chain(&node.aggr_expr).collect();
            exprs.get(index).map_or(Ok(true), |expr| computed(expr, &node.input))
        }
        LogicalPlan::Window(node) => match index.checked_sub(node.input.schema().fields().len()) {
            Some(number) => computed(&node.window_expr[number], &node.input),
            None => is_rounded(&node.input, index),
        },
        LogicalPlan::TableScan(scan) => match SharedRelation::scanned(scan) {
            Some(relation) => {
                let index = scan.projection.as_ref().map_or(index, |projection| projection[index]);
                let plan = relation.plan();
                Ok(index < plan.schema().fields().len() && is_rounded(plan, index)?)
            }
            None => Ok(false),
        },
        LogicalPlan::Union(node) => {
            for input in &node.inputs {
                if is_rounded(input, index)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        LogicalPlan::SubqueryAlias(node) => is_rounded(&node.input, index),
        LogicalPlan::RecursiveQuery(query) => {
            // A column may be computed from any column of the iteration before. So it is rounded if any column of a
            // term is.
            let terms = [&query.static_term, &query.recursive_term];
            for term in terms {
                for index in 0..term.schema().fields().len() {
                    if is_rounded(term, index)? {
                        return Ok(true);
                    }
                }
            }
            Ok(false)
        }
        LogicalPlan::Filter(_)
        | LogicalPlan::Sort(_)
        | LogicalPlan::Join(_)
        | LogicalPlan::Repartition(_)
        | LogicalPlan::EmptyRelation(_)
        | LogicalPlan::Subquery(_)
        | LogicalPlan::Limit(_)
        | LogicalPlan::Values(_)
        | LogicalPlan::Distinct(_)
        | LogicalPlan::Unnest(_)
        | LogicalPlan::Extension(_)
        | non_query_nodes!() => is_rounded_in(&plan.schema().columns()[index], &plan.inputs()),
    }
}

/// Returns whether what an expression over a plan computes is rounded, be it a float or not.
fn is_rounded_as(expr: &Expr, input: &LogicalPlan, is_float: bool) -> Result<bool> {
    let rounds = expr.exists(|part| {
        let name = match part {
            Expr::AggregateFunction(call) => call.func.name(),
            Expr::WindowFunction(call) => call.fun.name(),
            _ => return Ok(false),
        };
        Ok(is_float && !EXACT.contains(&name))
    })?;
    if rounds {
        return Ok(true);
    }
    for column in expr.column_refs() {
        if is_rounded_in(column, &[input])? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Aggregates and window functions that do not round.
const EXACT: [&str; 13] = [
    "min",
    "max",
    "count",
    "first_value",
    "last_value",
    "nth_value",
    "lag",
    "lead",
    "row_number",
    "rank",
    "dense_rank",
    "ntile",
    "array_agg",
];
