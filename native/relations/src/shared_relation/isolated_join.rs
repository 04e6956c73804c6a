//! Plans that are planned apart from what reads them.

use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_common::{JoinType, Result};
use datafusion_expr::{Expr, LogicalPlan};
use std::sync::Arc;
use xql_autodiff::vocabulary::columns::{has_subquery, is_volatile};

use super::relation::{SharedRelation, read_from};
use crate::vocabulary::names::{Names, columns, named, under_names_of};
use crate::vocabulary::nodes::any_part;

/// Returns the rows of a join of shared relations, planned apart from what reads them, so that `xql_contraction` finds the joins in it.
/// The plan has the same columns as before. One that reads other tables stays, as a condition above it may reach these, and so does a
/// full join.
///
/// ```text
/// Left Join: a.∂row = b.∂row             ->      TableScan: ∂joined                EXPLAIN shows UniqueKeyJoinExec: on=[∂row of 0 = ∂row of 1]
/// ```
///
/// # Errors
/// If the plan cannot be gone through.
pub fn joined_apart(plan: LogicalPlan, names: &mut Names) -> Result<Transformed<LogicalPlan>> {
    if !reads_relations_alone(&plan)? {
        return Ok(Transformed::no(plan));
    }
    let schema = Arc::clone(plan.schema());
    let plan = named(plan, &columns(&schema), names)?;
    let relation = Arc::new(SharedRelation::part(names.part("joined"), plan));
    under_names_of(&schema, relation.scan()?).map(Transformed::yes)
}

/// Returns a plan with joins that are planned apart where they were before, if nodes in them are looked for: a node above that has calls,
/// too, looks into the queries in FROM that stand there.
///
/// # Errors
/// If the plan cannot be gone through.
pub fn joined_in_place(plan: LogicalPlan, is_looked_for: &dyn Fn(&LogicalPlan) -> bool) -> Result<LogicalPlan> {
    let joined = SharedRelation::replace_scans(plan, &|scan, relation| {
        let is_replaced = relation.is_part() && SharedRelation::any_node_in(relation.plan(), is_looked_for)?;
        is_replaced.then(|| read_from(scan, relation.plan().clone())).transpose()
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
            // Rows that stand after one another are to become a union.
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
