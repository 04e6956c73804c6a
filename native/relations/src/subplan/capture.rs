//! Planning a CTE or a view once for all of its readers.

use datafusion_common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion_common::{DFSchemaRef, Result};
use datafusion_expr::logical_plan::Subquery;
use datafusion_expr::planner::{PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning};
use datafusion_expr::{Expr, LogicalPlan};
use datafusion_optimizer::Analyzer;
use sqlparser::ast::{ObjectName, TableFactor};
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::materialized::{Materialization, marker_of};
use super::scan::{CommonSubplan, written_out_size};

/// A subplan of fewer nodes is written out by its readers, as DataFusion does, unless it says that it is not.
const LEAST_SIZE: usize = 24;

/// Plans a CTE or view that is large as a leaf, which is the same for all of its readers.
#[derive(Debug, Default)]
pub struct CommonSubplans {
    /// The subplans by the address of a schema, which is theirs as long as they are here.
    known: Mutex<HashMap<usize, Weak<CommonSubplan>>>,
}

thread_local! {
    /// Whether DataFusion is asked for what it makes of a name.
    static IS_ASKING: Cell<bool> = const { Cell::new(false) };
}

impl RelationPlanner for CommonSubplans {
    fn plan_relation(
        &self,
        relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        if IS_ASKING.take() {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        }
        let mut plain = relation.clone();
        let TableFactor::Table { alias, args: None, .. } = &mut plain else {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        };
        let alias = alias.take();
        let planned = planned(plain, context)?;
        let says = match (key(&planned), &relation) {
            (Some(_), TableFactor::Table { name, .. }) => materialization(name, context),
            _ => None,
        };
        let plan = match self.common(&planned, says, context)? {
            Some(subplan) => subplan.scan(),
            None => planned,
        };
        Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(plan, alias))))
    }
}

/// Returns what DataFusion makes of a relation.
fn planned(relation: TableFactor, context: &mut dyn RelationPlannerContext) -> Result<LogicalPlan> {
    IS_ASKING.set(true);
    let planned = context.plan(relation);
    IS_ASKING.set(false);
    planned
}

/// Returns what a CTE of this name says of itself.
fn materialization(name: &ObjectName, context: &mut dyn RelationPlannerContext) -> Option<Materialization> {
    // There is no such relation for most.
    Materialization::of_marker(&planned(marker_of(name)?, context).ok()?)
}

impl CommonSubplans {
    /// Returns the common subplan that a plan is, if it is that of a CTE or view, and large or one that `says` so.
    fn common(
        &self,
        plan: &LogicalPlan,
        says: Option<Materialization>,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<Option<Arc<CommonSubplan>>> {
        let Some(key) = key(plan).filter(|_| says != Some(Materialization::Never)) else { return Ok(None) };
        let is_materialized = says == Some(Materialization::Always);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(subplan) = known.get(&key).and_then(Weak::upgrade).filter(|subplan| subplan.is_of(plan)) {
            return Ok(Some(subplan));
        }
        if (written_out_size(plan)? < LEAST_SIZE && !is_materialized) || has_free_reference(plan, &mut vec![])? {
            return Ok(None);
        }
        let options = context.context_provider().options();
        let mut analyzed = plan.clone();
        for rule in Analyzer::new().rules {
            // What is wrong with it DataFusion says, when it gets to it.
            let Ok(plan) = rule.analyze(analyzed, options) else { return Ok(None) };
            analyzed = plan;
        }
        // DataFusion may give one of its columns another name meanwhile, and its readers know it by the one that it had.
        let names = |plan: &LogicalPlan| plan.schema().columns();
        if names(&analyzed) != names(plan) {
            return Ok(None);
        }
        let subplan = Arc::new(CommonSubplan::try_new(plan.clone(), analyzed, is_materialized)?);
        known.retain(|_, subplan| subplan.strong_count() > 0);
        known.insert(key, Arc::downgrade(&subplan));
        Ok(Some(subplan))
    }
}

/// Returns where the schema of what is below the name of a CTE or view is in memory, which its readers share.
fn key(plan: &LogicalPlan) -> Option<usize> {
    let LogicalPlan::SubqueryAlias(alias) = plan else { return None };
    Some(Arc::as_ptr(alias.input.schema()) as usize)
}

/// Returns whether a plan reads columns of a query around it.
fn has_free_reference(plan: &LogicalPlan, around: &mut Vec<DFSchemaRef>) -> Result<bool> {
    let mut found = false;
    plan.apply(|node| {
        let depth = around.len();
        around.extend(node.inputs().into_iter().map(|input| Arc::clone(input.schema())));
        node.apply_expressions(|expr| {
            expr.apply(|part| {
                found |= match part {
                    Expr::OuterReferenceColumn(_, column) => {
                        !around[..depth].iter().any(|schema| schema.maybe_index_of_column(column).is_some())
                    }
                    _ => false,
                };
                Ok(TreeNodeRecursion::Continue)
            })
        })?;
        node.apply_subqueries(|subquery| {
            found = found || has_free_reference(query_of(subquery), around)?;
            Ok(TreeNodeRecursion::Continue)
        })?;
        // What is on the right of a join may name columns of the left: LATERAL.
        if let LogicalPlan::Join(join) = node
            && let LogicalPlan::Subquery(lateral) = join.right.as_ref()
        {
            found = found || has_free_reference(&lateral.subquery, around)?;
        }
        around.truncate(depth);
        let is_lateral = matches!(node, LogicalPlan::Subquery(_));
        Ok(match (found, is_lateral) {
            (true, _) => TreeNodeRecursion::Stop,
            // It has been looked into by its join.
            (_, true) => TreeNodeRecursion::Jump,
            _ => TreeNodeRecursion::Continue,
        })
    })?;
    Ok(found)
}

fn query_of(plan: &LogicalPlan) -> &LogicalPlan {
    match plan {
        LogicalPlan::Subquery(Subquery { subquery, .. }) => subquery,
        other => other,
    }
}
