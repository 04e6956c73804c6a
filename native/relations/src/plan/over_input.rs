//! Columns of a node as expressions over an input of it.

use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_common::{Column, Result};
use datafusion_expr::{Distinct, Expr, LogicalPlan};

use crate::vocabulary::expressions::unaliased;
use crate::vocabulary::nodes::{computed, non_query_nodes};
use crate::vocabulary::origin::{Origin, origin};

/// Returns what the columns of a node are over an input of it; nothing for those that are not computed from it.
pub fn over_input(plan: &LogicalPlan, number: usize) -> Result<Vec<Option<Expr>>> {
    let inputs = plan.inputs();
    let Some(input) = inputs.get(number) else { return Ok(vec![]) };
    let exprs = match plan {
        LogicalPlan::Projection(projection) => &projection.expr,
        LogicalPlan::Distinct(Distinct::On(on)) => &on.select_expr,
        LogicalPlan::Aggregate(aggregate) => {
            return Ok(computed(aggregate)?.into_iter().map(Option::<&Expr>::cloned).collect());
        }
        LogicalPlan::Filter(_)
        | LogicalPlan::Window(_)
        | LogicalPlan::Sort(_)
        | LogicalPlan::Join(_)
        | LogicalPlan::Repartition(_)
        | LogicalPlan::Union(_)
        | LogicalPlan::TableScan(_)
        | LogicalPlan::EmptyRelation(_)
        | LogicalPlan::Subquery(_)
        | LogicalPlan::SubqueryAlias(_)
        | LogicalPlan::Limit(_)
        | LogicalPlan::Values(_)
        | LogicalPlan::Distinct(Distinct::All(_))
        | LogicalPlan::Unnest(_)
        | LogicalPlan::RecursiveQuery(_)
        | LogicalPlan::Extension(_)
        | non_query_nodes!() => {
            let mut columns = vec![];
            for index in 0..plan.schema().fields().len() {
                columns.push(match origin(plan, index)? {
                    Origin::Below(sources) => sources
                        .iter()
                        .find(|(input, _)| *input == number)
                        .map(|(_, below)| Expr::Column(Column::from(input.schema().qualified_field(*below)))),
                    Origin::Here => None,
                });
            }
            return Ok(columns);
        }
    };
    Ok(exprs.iter().map(|expr| Some(unaliased(expr).clone())).collect())
}

/// Returns what computes the columns of a node over an input of it, those of lists and structs and window functions included.
pub fn computed_over_input(plan: &LogicalPlan, input: usize) -> Result<Vec<Option<Expr>>> {
    let mut computed = over_input(plan, input)?;
    match plan {
        LogicalPlan::Window(window) => {
            computed.truncate(computed.len() - window.window_expr.len());
            computed.extend(window.window_expr.iter().cloned().map(Some));
        }
        LogicalPlan::Unnest(unnest) => {
            let below = unnest.dependency_indices.iter();
            let column = |index: &usize| Expr::Column(Column::from(unnest.input.schema().qualified_field(*index)));
            computed = below.map(|index| Some(column(index))).collect();
        }
        _ => {}
    }
    Ok(computed)
}

/// Returns an expression over a node as one over its input, if it can be.
pub fn substitute(expr: &Expr, plan: &LogicalPlan, exprs: &[Option<Expr>]) -> Result<Option<Expr>> {
    let mut known = true;
    let over_input = unaliased(expr).clone().transform_down(|part| {
        let Expr::Column(column) = &part else { return Ok(Transformed::no(part)) };
        let index = plan.schema().maybe_index_of_column(column);
        Ok(match index.and_then(|index| exprs.get(index)?.clone()) {
            Some(expr) => Transformed::new(expr, true, TreeNodeRecursion::Jump),
            None => {
                known = false;
                Transformed::no(part)
            }
        })
    })?;
    Ok(known.then_some(over_input.data).filter(|expr| !expr.is_volatile()))
}
