//! Rewrites full joins whose keys never match as unions.
//!
//! A statement with derivatives by several tables returns the rows of all of them. Calls in one node share one sweep,
//! but calls in the branches of a union need one each. A full join by keys that never match has all rows in one node:
//!
//! ```sql
//! SELECT coalesce(a.part, b.part) AS part, coalesce(grad((SELECT l FROM loss), a.val), grad((SELECT l FROM loss), b.val)) AS d
//! FROM (SELECT *, 1 AS part FROM w1) a FULL JOIN (SELECT *, 2 AS part FROM w2) b ON a.part = b.part
//! ```
//!
//! Such a join buffers one side, and each of its rows has the columns of all tables. So once the calls are rewritten,
//! it becomes a union. Each branch computes only the columns that are not known to be NULL in it.

mod fold;
mod parts;

use datafusion_common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion_common::{DFSchema, JoinType, Result};
use datafusion_expr::{Expr, LogicalPlan, Projection, Union};
use std::sync::Arc;

use crate::shared_relation::SharedRelation;
use crate::vocabulary::expressions::unaliased;
use crate::vocabulary::names::{Names, columns, under_names_of};
use crate::vocabulary::nodes::any_node;
use crate::vocabulary::nullable_wrapper::nullable;
use crate::vocabulary::operators::Operators;
use fold::is_null;
use parts::{Parts, reads_plan_around};

/// Rewrites full joins whose sides have different literal keys as unions.
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
    let mut names = Names::from_plan(&plan)?;
    let is_sorted = cfg!(feature = "datafusion-55") && any_node(&plan, |node| Ok(asks_for_order(node)))?;
    plan.transform_down_with_subqueries(|node| {
        let LogicalPlan::Projection(_) = &node else { return Ok(Transformed::no(node)) };
        let Some(parts) = Parts::match_plan(&node, operators, &mut names)? else { return Ok(Transformed::no(node)) };
        // With columns for each table, as many NULLs as there are tables squared would be written down.
        if node.schema().fields().len() > 2 * parts.widest() {
            return Ok(Transformed::no(node));
        }
        let branches = (0..parts.count()).map(|part| parts.branch(part)).collect::<Result<Vec<_>>>()?;
        if !are_of_types(&branches, node.schema()) {
            return Ok(Transformed::no(node));
        }
        // A union gives names of its own to columns of one name.
        let unique: Vec<_> = node.schema().fields().iter().map(|field| names.part(field.name())).collect();
        let branches = branches.into_iter().map(|branch| under(branch, &unique, node.schema()).map(Arc::new));
        let union = LogicalPlan::Union(Union::try_new_with_loose_types(branches.collect::<Result<_>>()?)?);
        let union = if is_sorted { isolate_union(union, &mut names)? } else { Some(union) };
        let Some(union) = union else { return Ok(Transformed::no(node)) };
        Ok(Transformed::new(under_names_of(node.schema(), union)?, true, TreeNodeRecursion::Jump))
    })
}

/// Returns whether a node needs its rows in an order.
fn asks_for_order(node: &LogicalPlan) -> bool {
    matches!(node, LogicalPlan::Sort(_) | LogicalPlan::Window(_))
}

/// Plans a union separately from the sort above it. DataFusion 55 sorts each branch, assumes that columns which are
/// NULL in one branch are sorted in all, and then refuses its own plan. Returns `None` if the union reads outer columns
/// or a work table.
fn isolate_union(union: LogicalPlan, names: &mut Names) -> Result<Option<LogicalPlan>> {
    if reads_plan_around(&union)? {
        return Ok(None);
    }
    Arc::new(SharedRelation::isolated(names.part("union"), union)).scan().map(Some)
}

/// Returns whether the columns of all branches are of the types that they are to have, with what their fields say beside.
///
/// One that may not be NULL has to be a value in each: an optimizer finds out of some expressions that they are never NULL, and not of
/// others.
fn are_of_types(branches: &[LogicalPlan], wanted: &DFSchema) -> bool {
    wanted.fields().iter().enumerate().all(|(index, wanted)| {
        branches.iter().all(|branch| {
            let is_value = || matches!(branch, LogicalPlan::Projection(node) if is_literal(&node.expr[index]));
            branch.schema().field(index).metadata() == wanted.metadata() && (wanted.is_nullable() || is_value())
        })
    })
}

fn is_literal(expr: &Expr) -> bool {
    matches!(unaliased(expr), literal @ Expr::Literal(..) if !is_null(literal))
}

/// Returns the rows of a branch under other names. On DataFusion 54 their columns may be NULL by their types where those of the join may,
/// whatever an optimizer finds out of the values: it hands on what the branches of a union give as they give it, and readers of Arrow
/// refuse batches that differ in that.
///
/// ```sql
/// SELECT 1.0 AS x UNION ALL SELECT x FROM t
/// ```
fn under(branch: LogicalPlan, names: &[String], wanted: &DFSchema) -> Result<LogicalPlan> {
    let (exprs, input) = match branch {
        LogicalPlan::Projection(projection) => (projection.expr, projection.input),
        other => (columns(other.schema()), Arc::new(other)),
    };
    let named = exprs.into_iter().zip(names).zip(wanted.fields()).map(|((expr, name), wanted)| {
        let expr = expr.unalias();
        let is_marked = cfg!(not(feature = "datafusion-55")) && wanted.is_nullable() && !is_null(&expr);
        Ok(if is_marked { nullable(expr)? } else { expr }.unalias().alias(name.clone()))
    });
    let named = named.collect::<Result<Vec<_>>>()?;
    Ok(LogicalPlan::Projection(Projection::try_new(named, input)?))
}
