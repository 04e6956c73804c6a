//! Decorrelates the subqueries of calls: they become columns of the node's input.

use datafusion_common::Result;
use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_expr::expr::ScalarFunction;
use datafusion_expr::logical_plan::Subquery;
use datafusion_expr::{Expr, Join, LogicalPlan};
use datafusion_optimizer::scalar_subquery_to_join::ScalarSubqueryToJoin;
use datafusion_optimizer::{OptimizerConfig, OptimizerContext, OptimizerRule};
use std::sync::Arc;
use xql_autodiff::vocabulary::functions::stop_gradient_argument;
use xql_autodiff::vocabulary::types::can_vary;

use crate::vocabulary::decorrelated::decorrelated;
use crate::vocabulary::expressions::unaliased;
use crate::vocabulary::identity::{PlanPath, Relation};
use crate::vocabulary::operators::{Recognize, is_call};
use crate::vocabulary::source::origins_of;

/// The first number of the names that decorrelation gives here. DataFusion later numbers its own from 1, in the same
/// plan.
const FIRST_NUMBER: usize = 1_000_000;

/// Decorrelates the scalar subqueries of a node, if one of them may vary with a variable of a call that reads it. A
/// subquery that DataFusion cannot decorrelate stays.
pub fn subqueries_beside(plan: LogicalPlan, recognize: Recognize) -> Result<Transformed<LogicalPlan>> {
    let is_taken = matches!(plan, LogicalPlan::Projection(_) | LogicalPlan::Filter(_));
    if !is_taken || !may_vary(&plan, recognize)? {
        return Ok(Transformed::no(plan));
    }
    let context = OptimizerContext::new();
    context.alias_generator().update_min_id(FIRST_NUMBER);
    let rule = ScalarSubqueryToJoin::new();
    let beside = rule.rewrite(plan, &context)?;
    // Decorrelates nested subqueries as well.
    beside.transform_data(|plan| {
        plan.transform_down(|node| match node {
            LogicalPlan::Join(join) if decorrelated(&join).is_some() => {
                let right = join.right.as_ref().clone().transform_down(|node| rule.rewrite(node, &context))?;
                Ok(right.update_data(|right| LogicalPlan::Join(Join { right: Arc::new(right), ..join })))
            }
            node => Ok(Transformed::no(node)),
        })
    })
}

/// Returns whether a correlated subquery in a call of a node reads what a variable comes from, or a float of the node's input.
fn may_vary(plan: &LogicalPlan, recognize: Recognize) -> Result<bool> {
    let inputs = plan.inputs();
    let [input] = inputs.as_slice() else { return Ok(false) };
    let mut varies = false;
    plan.apply_expressions(|expr| {
        expr.apply(|part| {
            if let (true, Expr::ScalarFunction(call)) = (is_call(part, recognize), part) {
                varies = varies || is_read_in(call, input)?;
            }
            Ok(if varies { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })
    })?;
    Ok(varies)
}

fn is_read_in(call: &ScalarFunction, input: &LogicalPlan) -> Result<bool> {
    let [function, variables @ ..] = call.args.as_slice() else { return Ok(false) };
    let subqueries = correlated(function)?;
    if subqueries.iter().flat_map(|subquery| &subquery.outer_ref_columns).any(is_float) {
        return Ok(true);
    }
    for variable in variables.iter().step_by(2) {
        let Expr::Column(variable) = unaliased(variable) else { continue };
        let Some(index) = input.schema().maybe_index_of_column(variable) else { continue };
        for origin in origins_of(input, index)? {
            let relation = Relation::named(origin, PlanPath::default());
            for Subquery { subquery, .. } in &subqueries {
                if relation.is_read_in(subquery)? {
                    return Ok(true);
                }
            }
        }
    }
    Ok(false)
}

fn is_float(outer: &Expr) -> bool {
    matches!(outer, Expr::OuterReferenceColumn(field, _) if can_vary(field.data_type()))
}

/// Returns the correlated scalar subqueries of an expression, but for those that it stops.
fn correlated(expression: &Expr) -> Result<Vec<&Subquery>> {
    let mut found = vec![];
    expression.apply(|part| {
        match part {
            Expr::ScalarSubquery(subquery)
                if !subquery.outer_ref_columns.is_empty() && !has_lateral(&subquery.subquery)? =>
            {
                found.push(subquery);
            }
            part if stop_gradient_argument(part).is_some() => return Ok(TreeNodeRecursion::Jump),
            _ => {}
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(found)
}

/// Returns whether a LATERAL in a query takes columns of what stands beside it, which are no columns of a query around.
fn has_lateral(query: &LogicalPlan) -> Result<bool> {
    query.exists(|node| Ok(matches!(node, LogicalPlan::Subquery(lateral) if !lateral.outer_ref_columns.is_empty())))
}
