//! Binds unqualified names of `USING` columns, which DataFusion binds to the outer query.
//!
//! ```sql
//! SELECT grad((SELECT SUM(m.val * y.val * k) FROM m LEFT JOIN y USING (k)), val) FROM m
//! ```
//!
//! In this subquery `k` is the column of the join. DataFusion finds two columns of that name there, and so looks for
//! one in the outer query. It is certain that the inner one is meant if the outer table has the same name as an inner
//! one: `m.k` in the text would have been the inner column.

use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{Column, DFSchema, Result};
use datafusion_expr::logical_plan::{JoinConstraint, Subquery};
use datafusion_expr::utils::merge_schema;
use datafusion_expr::{Expr, Join, LogicalPlan};
use std::sync::Arc;

use crate::vocabulary::nodes::{any_node, has_subquery, with_expressions};
use crate::vocabulary::operators::{Recognize, has_call};

/// Rebinds such columns in the subqueries of a node with calls.
pub fn shadowed_bound(plan: LogicalPlan, recognize: Recognize) -> Result<Transformed<LogicalPlan>> {
    if !has_subquery(&plan)? || !has_call(&plan, recognize)? {
        return Ok(Transformed::no(plan));
    }
    with_expressions(plan, |expr| {
        expr.transform_up(|part| match part {
            Expr::ScalarSubquery(subquery) if !subquery.outer_ref_columns.is_empty() => {
                Ok(bound(subquery)?.update_data(Expr::ScalarSubquery))
            }
            part => Ok(Transformed::no(part)),
        })
    })
}

fn bound(subquery: Subquery) -> Result<Transformed<Subquery>> {
    let plan = subquery.subquery.as_ref().clone().transform_down(|node| {
        let (own, used) = (merge_schema(&node.inputs()), used(&node)?);
        with_expressions(node, |expr| {
            expr.transform_up(|part| match &part {
                Expr::OuterReferenceColumn(_, column) if used.contains(&column.name) => {
                    Ok(own_column(column, &own).map_or(Transformed::no(part), Transformed::yes))
                }
                _ => Ok(Transformed::no(part)),
            })
        })
    })?;
    if !plan.transformed {
        return Ok(Transformed::no(subquery));
    }
    let plan = plan.data.recompute_schema()?;
    let outer_ref_columns = plan.all_out_ref_exprs();
    Ok(Transformed::yes(Subquery { subquery: Arc::new(plan), outer_ref_columns, spans: subquery.spans }))
}

/// Returns the names of the columns that a `USING` below a node joins.
fn used(node: &LogicalPlan) -> Result<Vec<String>> {
    let mut names = vec![];
    any_node(node, |below| {
        if let LogicalPlan::Join(Join { join_constraint: JoinConstraint::Using, on, .. }) = below {
            names.extend(on.iter().filter_map(|(left, _)| Some(left.try_as_col()?.name.clone())));
        }
        Ok(false)
    })?;
    Ok(names)
}

/// Returns the column of a schema that a name is, if the column outside of that name would have been one of it: of several, DataFusion
/// takes the first.
fn own_column(outside: &Column, own: &DFSchema) -> Option<Expr> {
    let is_shadowed = outside.relation.is_some() && own.has_column(outside);
    let first = own.iter().find(|(_, field)| *field.name() == outside.name).filter(|_| is_shadowed)?;
    Some(Expr::Column(Column::from(first)))
}
