//! Full joins no two rows of which have the same key, as unions.
//!
//! One statement that asks for the derivatives by several tables has their rows after one another, for which SQL has no word in one node but
//! this: calls that stand in one node are one sweep, and those in the branches of a union are many.
//!
//! ```sql
//! SELECT coalesce(a.part, b.part) AS part, coalesce(grad((SELECT l FROM loss), a.val), grad((SELECT l FROM loss), b.val)) AS d
//! FROM (SELECT *, 1 AS part FROM w1) a FULL JOIN (SELECT *, 2 AS part FROM w2) b ON a.part = b.part
//! ```
//!
//! Such a join holds one side, and each of its rows has the columns of all tables. Once the calls are gone, it is a union, each branch of
//! which computes what is not known of it to be NULL.

mod known;
mod parts;

use datafusion_common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion_common::{DFSchema, JoinType, Result};
#[cfg(not(feature = "datafusion-55"))]
use datafusion_expr::{Expr, Projection};
use datafusion_expr::{LogicalPlan, Union};
use std::sync::Arc;

use crate::vocabulary::names::{Names, under_names_of};
use crate::vocabulary::nodes::any_node;
use crate::vocabulary::operators::Operators;
#[cfg(not(feature = "datafusion-55"))]
use crate::vocabulary::{expressions::unaliased, markers::nullable, names::columns};
use parts::Parts;

/// A plan whose full joins of rows that are apart by their keys are unions.
///
/// ```text
/// Projection: coalesce(a.val, b.val) AS val            Union
///   Full Join: a.part = b.part                           Projection: val
///     Projection: val, 1 AS part                  ->       TableScan: a
///       TableScan: a                                     Projection: val
///     Projection: val, 2 AS part                           TableScan: b
///       TableScan: b
/// ```
///
/// # Errors
/// If the plan cannot be put together again.
pub fn disjoint_joins_as_unions(plan: LogicalPlan, operators: &Operators) -> Result<Transformed<LogicalPlan>> {
    let is_full = |node: &LogicalPlan| matches!(node, LogicalPlan::Join(join) if join.join_type == JoinType::Full);
    if !any_node(&plan, |node| Ok(is_full(node)))? {
        return Ok(Transformed::no(plan));
    }
    let mut names = Names::of(&plan)?;
    plan.transform_down_with_subqueries(|node| {
        let LogicalPlan::Projection(_) = &node else { return Ok(Transformed::no(node)) };
        let Some(parts) = Parts::of(&node, operators, &mut names)? else { return Ok(Transformed::no(node)) };
        let branches = (0..parts.count()).map(|part| as_nullable(parts.branch(part)?, node.schema()).map(Arc::new));
        let branches = branches.collect::<Result<Vec<_>>>()?;
        let union = LogicalPlan::Union(Union::try_new_with_loose_types(branches)?);
        Ok(Transformed::new(under_names_of(node.schema(), union)?, true, TreeNodeRecursion::Jump))
    })
}

/// The rows of a branch, whose columns may be NULL by their types where those of the join may, whatever an optimizer finds out of the
/// values: DataFusion 54 hands on what the branches of a union give as they give it, and readers of Arrow refuse batches that differ in
/// that.
///
/// ```sql
/// SELECT 1.0 AS x UNION ALL SELECT x FROM t
/// ```
#[cfg(not(feature = "datafusion-55"))]
fn as_nullable(branch: LogicalPlan, wanted: &DFSchema) -> Result<LogicalPlan> {
    let (mut exprs, input) = match branch {
        LogicalPlan::Projection(projection) => (projection.expr, projection.input),
        other => (columns(other.schema()), Arc::new(other)),
    };
    for (expr, wanted) in exprs.iter_mut().zip(wanted.fields()) {
        let is_null = matches!(unaliased(expr), Expr::Literal(value, _) if value.is_null());
        if wanted.is_nullable() && !is_null {
            *expr = nullable(std::mem::take(expr))?;
        }
    }
    Ok(LogicalPlan::Projection(Projection::try_new(exprs, input)?))
}

/// The rows of a branch, to whose columns a union gives their types.
#[cfg(feature = "datafusion-55")]
fn as_nullable(branch: LogicalPlan, _: &DFSchema) -> Result<LogicalPlan> {
    Ok(branch)
}
