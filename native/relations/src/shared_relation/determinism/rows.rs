//! Makes relations repeatable: they have the same rows each time they are computed.

use datafusion_common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion_common::{Column, Result, plan_err};
use datafusion_expr::{Expr, ExprFunctionExt, LogicalPlan, LogicalPlanBuilder};
use datafusion_functions_window::expr_fn::row_number;
use xql_autodiff::vocabulary::messages::abbreviate;

use super::order::{in_one_order, total_order};
use crate::shared_relation::iterations::IterationsNode;
use crate::vocabulary::nullable_wrapper::unwrap_nullable;

/// Rewrites a relation so that each reader can compute it and gets the same rows. With `number`, adds their numbers in
/// a column of that name.
///
/// ```text
/// TableScan: w            ->      Projection: val, row_number() OVER (ORDER BY val) AS ∂row
///                                   TableScan: w
/// ```
///
/// # Errors
/// If it has other rows each time, or if its rows have no order that is the same each time.
pub fn repeatable(plan: LogicalPlan, number: Option<&str>) -> Result<LogicalPlan> {
    check_repeatable(&plan)?;
    let plan = in_one_order(plan)?;
    let Some(number) = number else { return Ok(plan) };
    let key = |index| Expr::Column(Column::from(plan.schema().qualified_field(index))).sort(true, false);
    let row = row_number().order_by(total_order(&plan)?.into_iter().map(key).collect()).build()?;
    LogicalPlanBuilder::from(plan).window([row.alias(number)])?.build()
}

/// Refuses a relation that has other rows each time that it is computed.
fn check_repeatable(plan: &LogicalPlan) -> Result<()> {
    let mut found = None;
    plan.apply_with_subqueries(|node| {
        if let Some(iterations) = IterationsNode::from_node(node) {
            return plan_err!(
                "a gradient by row passes through the recursive query {}, whose iterations are kept while the statement runs, in the session \
                 that has the functions registered. Run it there, without xql.share_relations = false; or as text for DuckDB, the only \
                 engine whose recursive term may read the rows before several times and aggregate them",
                iterations.query()
            );
        }
        for expr in node.expressions() {
            if is_volatile(&expr)? {
                found = Some(abbreviate(&expr.unalias_nested().data));
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

/// Returns whether an expression may have another value each time. The wrapper that makes an expression nullable does
/// not count.
fn is_volatile(expr: &Expr) -> Result<bool> {
    let mut found = false;
    expr.apply(|part| {
        if let Some(value) = unwrap_nullable(part) {
            found |= is_volatile(value)?;
            return Ok(TreeNodeRecursion::Jump);
        }
        found |= part.is_volatile_node();
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}
