//! Isolated joins: joins that are planned as plans of their own.

use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_common::{JoinType, Result};
use datafusion_expr::expr_rewriter::replace_col;
use datafusion_expr::{Expr, LogicalPlan, Projection};
use std::sync::Arc;
use xql_autodiff::vocabulary::columns::{has_subquery, is_volatile};

use super::relation::SharedRelation;
use crate::vocabulary::names::{Names, columns, named, under_names_of};
use crate::vocabulary::nodes::any_part;

/// Isolates a join of shared relations: plans it as a plan of its own, in which `xql_contraction` finds the joins. The
/// result has the same columns. A plan that reads other tables stays, since a condition above it may be pushed down to
/// these. A full join also stays.
///
/// ```text
/// Left Join: a.∂row = b.∂row             ->      TableScan: ∂joined                EXPLAIN shows UniqueKeyJoinExec: on=[∂row of 0 = ∂row of 1]
/// ```
///
/// # Errors
/// If the plan cannot be gone through.
pub fn isolate_joins(plan: LogicalPlan, names: &mut Names) -> Result<Transformed<LogicalPlan>> {
    if !reads_relations_alone(&plan)? {
        return Ok(Transformed::no(plan));
    }
    let schema = Arc::clone(plan.schema());
    let plan = named(plan, &columns(&schema), names)?;
    let relation = Arc::new(SharedRelation::streamed(names.part("joined"), plan));
    under_names_of(&schema, relation.scan()?).map(Transformed::yes)
}

/// Restores isolated joins in a plan and its subqueries, since a node above with calls of its own has to look into
/// them.
///
/// # Errors
/// If the plan cannot be gone through.
pub fn restore_joins(plan: LogicalPlan) -> Result<LogicalPlan> {
    let joined = plan.transform_down_with_subqueries(|node| {
        let LogicalPlan::Projection(reader) = &node else { return Ok(Transformed::no(node)) };
        let joined = SharedRelation::scanned_by(&reader.input).filter(|relation| relation.is_streamed());
        let Some(LogicalPlan::Projection(named)) = joined.as_ref().map(|relation| relation.plan()) else {
            return Ok(Transformed::no(node));
        };
        // Under the names that the columns had: those that a gradient by row has added are known by theirs.
        if named.input.schema().iter().eq(reader.schema.iter()) {
            return Ok(Transformed::yes(named.input.as_ref().clone()));
        }
        let (scanned, below) = (reader.input.schema().columns(), named.input.schema().columns());
        let names = scanned.iter().zip(&below).collect();
        let exprs = reader.expr.iter().zip(reader.schema.iter()).map(|(expr, (table, field))| {
            let expr = replace_col(expr.clone().unalias(), &names)?;
            Ok(expr.alias_qualified(table.cloned(), field.name()))
        });
        let exprs = exprs.collect::<Result<Vec<_>>>()?;
        let projection = Projection::try_new(exprs, Arc::clone(&named.input))?;
        Ok(Transformed::yes(LogicalPlan::Projection(projection)))
    })?;
    Ok(joined.data)
}

/// Returns whether all tables that a plan reads are shared relations, and nothing in it is of the plan around.
fn reads_relations_alone(plan: &LogicalPlan) -> Result<bool> {
    let mut reads_others = false;
    plan.apply(|node| {
        let is_of_another = |expr: &Expr| expr.contains_outer() || has_subquery(expr) || is_volatile(expr);
        reads_others |= match node {
            LogicalPlan::TableScan(scan) => SharedRelation::scanned(scan).is_none(),
            // `crate::disjoint` rewrites full joins as unions.
            LogicalPlan::Join(join) if join.join_type == JoinType::Full => true,
            LogicalPlan::Projection(_)
            | LogicalPlan::Filter(_)
            | LogicalPlan::SubqueryAlias(_)
            | LogicalPlan::Join(_) => any_part(node, is_of_another)?,
            _ => true,
        };
        Ok(if reads_others { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(!reads_others)
}
