//! Inlines shared relations: each reader then computes the relation itself.

use datafusion_common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion_common::{Result, plan_err};
use datafusion_expr::{LogicalPlan, RecursiveQuery, TableScan, lit};
use std::sync::Arc;

use super::determinism::{check_found_again, repeatable};
use super::relation::{SharedRelation, read_from};
use crate::vocabulary::names::with_columns;
use crate::vocabulary::nodes::any_node;
use crate::vocabulary::work_table::is_work_table;

/// Inlines every shared relation of a plan. The result has nodes of DataFusion alone.
///
/// ```text
/// TableScan: ∂rows        ->      Projection: val, row_number() OVER (ORDER BY val) AS ∂row
///                                   TableScan: w
/// ```
///
/// # Errors
/// If a relation has other rows each time it is computed, or if it reads the rows of the last iteration of a recursive query, which
/// can be read once.
pub fn inline_shared_relations(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    if !SharedRelation::is_scanned_in(&plan)? {
        return Ok(Transformed::no(plan));
    }
    check_size(&plan)?;
    Ok(Transformed::yes(Relations::default().inline_shared_relations(plan)?))
}

/// Shared relations, each with what computes it.
#[derive(Default)]
struct Relations(Vec<(Arc<SharedRelation>, LogicalPlan)>);

impl Relations {
    #[recursive::recursive]
    fn inline_shared_relations(&mut self, plan: LogicalPlan) -> Result<LogicalPlan> {
        check_found_again(&plan)?;
        let written = plan.transform_up_with_subqueries(|node| match node {
            LogicalPlan::TableScan(scan) => match SharedRelation::scanned(&scan) {
                Some(relation) => Ok(Transformed::yes(self.computed(&relation, &scan)?)),
                None => Ok(Transformed::no(LogicalPlan::TableScan(scan))),
            },
            LogicalPlan::RecursiveQuery(query) => {
                check_reads(&query)?;
                Ok(Transformed::no(LogicalPlan::RecursiveQuery(query)))
            }
            node => Ok(Transformed::no(node)),
        })?;
        Ok(written.data)
    }

    /// Returns what a scan of a relation reads.
    fn computed(&mut self, relation: &Arc<SharedRelation>, scan: &TableScan) -> Result<LogicalPlan> {
        let known = self.0.iter().find(|(known, _)| Arc::ptr_eq(known, relation)).map(|(_, plan)| plan.clone());
        let plan = match known {
            Some(plan) => plan,
            None => {
                let plan = self.rows_of(relation)?;
                self.0.push((Arc::clone(relation), plan.clone()));
                plan
            }
        };
        read_from(scan, plan)
    }

    /// Returns the rows of a relation, with their numbers if it has them.
    fn rows_of(&mut self, relation: &SharedRelation) -> Result<LogicalPlan> {
        let plan = self.inline_shared_relations(relation.plan().clone())?;
        // No other reader has to find the rows of a relation that is read once.
        if relation.is_read_once() { Ok(plan) } else { repeatable(plan, relation.number()) }
    }
}

/// Inlines every shared relation of a plan for analysis only: row numbers are 0 in the result, and nothing is refused.
///
/// # Errors
/// If the plan cannot be put together again.
pub fn inline_for_analysis(plan: LogicalPlan) -> Result<LogicalPlan> {
    let written = SharedRelation::replace_scans(plan, &|scan, relation| {
        let number = relation.number().map(|row| lit(0_u64).alias(row));
        let rows = with_columns(relation.plan().clone(), number.into_iter().collect())?;
        read_from(scan, rows).map(Some)
    })?;
    Ok(written.data)
}

/// The limit of an inlined plan. DataFusion plans so many nodes in some seconds.
const MOST_NODES: usize = 10_000;

/// Inlines the CTEs and views of a plan that are shared relations, except in subqueries.
///
/// # Errors
/// If that is too large, or the plan cannot be put together again.
pub fn common_inlined(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let nodes = nodes_of(&plan, &mut vec![])?;
    if nodes > MOST_NODES {
        return plan_err!(
            "what a derivative stands beside in FROM is written out, and has {nodes} nodes so, more than the {MOST_NODES} that DataFusion can \
             plan in reasonable time. Keep its rows in a table, or take the derivative of a scalar subquery, grad((SELECT l FROM loss), val)"
        );
    }
    SharedRelation::replace_scans(plan, &|scan, relation| {
        if let Some(draws) = relation.shared_draws() {
            draws.write_out();
        }
        relation.is_common().then(|| relation.plan_read_by(scan)).transpose()
    })
}

/// Refuses a plan that is too large once it is inlined: a relation that reads another one twice doubles it.
fn check_size(plan: &LogicalPlan) -> Result<()> {
    let nodes = nodes_of(plan, &mut vec![])?;
    if nodes > MOST_NODES {
        return plan_err!(
            "without shared relations, each computed wherever it is read, the derivative has {nodes} nodes, more than the \
             {MOST_NODES} that DataFusion can plan in reasonable time. SET xql.share_relations = true, or keep the values of inner \
             layers in tables"
        );
    }
    Ok(())
}

/// Counts the nodes of a plan once it is inlined. `known` caches the counts of relations.
#[recursive::recursive]
fn nodes_of(plan: &LogicalPlan, known: &mut Vec<(Arc<SharedRelation>, usize)>) -> Result<usize> {
    let mut nodes = 0_usize;
    plan.apply_with_subqueries(|node| {
        nodes = nodes.saturating_add(1);
        let Some(relation) = SharedRelation::scanned_by(node) else { return Ok(TreeNodeRecursion::Continue) };
        let found = known.iter().find(|(known, _)| Arc::ptr_eq(known, &relation)).map(|(_, nodes)| *nodes);
        let of_relation = match found {
            Some(nodes) => nodes,
            None => {
                let nodes = nodes_of(relation.plan(), known)?;
                known.push((relation, nodes));
                nodes
            }
        };
        nodes = nodes.saturating_add(of_relation);
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(nodes)
}

/// Refuses a recursive term that reads the rows of the last iteration several times.
fn check_reads(query: &RecursiveQuery) -> Result<()> {
    let mut reads = 0;
    any_node(&query.recursive_term, |node| {
        let is_read = matches!(node, LogicalPlan::TableScan(scan) if is_work_table(scan, &query.name));
        reads += usize::from(is_read);
        Ok(false)
    })?;
    if reads > 1 {
        return plan_err!(
            "the derivative reads the rows of the last iteration of {} {reads} times, which can be read once while \
             xql.share_relations is false: write one step as a statement of its own, keep its rows in a table, and repeat it",
            query.name
        );
    }
    Ok(())
}
