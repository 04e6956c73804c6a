//! Columns of shared relations that their readers read, beside which none is computed.
//!
//! ```text
//! Projection: h.d                                      Projection: h.d
//!   TableScan: h                                         TableScan: h
//! h: Projection: x / y AS q, x - y AS d         ->     h: Projection: x - y AS d
//! ```
//!
//! A shared relation is planned apart from its readers, so that DataFusion's rule would take all columns of it for ones that are read. This
//! rule is asked about each plan instead, those of readers before those of what they read, and the answers of all readers are put together.

use datafusion_common::Result;
use datafusion_common::tree_node::TreeNodeRecursion;
use datafusion_expr::{LogicalPlan, TableScan};
use datafusion_optimizer::optimize_projections::OptimizeProjections;
use datafusion_optimizer::{OptimizerContext, OptimizerRule};
use std::collections::{BTreeSet, HashMap};
use std::ptr;
use std::sync::Arc;

use super::relation::SharedRelation;

/// Finds the columns that a plan reads of the shared relations that it scans, be it through others, and tells these.
///
/// # Errors
/// If a plan cannot be traversed or put together again.
pub fn find_columns_read(plan: &LogicalPlan) -> Result<()> {
    let mut relations = vec![];
    add_relations(plan, &mut relations)?;
    if relations.is_empty() {
        return Ok(());
    }
    let mut read = HashMap::new();
    add_columns(plan.clone(), &mut read)?;
    // Those that others read have been added before these.
    for relation in relations.iter().rev() {
        let columns = read.remove(&Arc::as_ptr(relation)).unwrap_or_default();
        relation.add_columns_read(columns);
        add_columns(relation.plan_of_columns_read(relation.plan().clone())?, &mut read)?;
    }
    Ok(())
}

/// Adds the relations that a plan scans, each once, and before it those that it scans itself.
#[recursive::recursive]
fn add_relations(plan: &LogicalPlan, relations: &mut Vec<Arc<SharedRelation>>) -> Result<()> {
    plan.apply_with_subqueries(|node| {
        if let Some(relation) = SharedRelation::scanned_by(node)
            && !relations.iter().any(|known| Arc::ptr_eq(known, &relation))
        {
            add_relations(relation.plan(), relations)?;
            relations.push(relation);
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

/// Adds the columns that the scans in a plan read.
fn add_columns(plan: LogicalPlan, read: &mut HashMap<*const SharedRelation, BTreeSet<usize>>) -> Result<()> {
    let pruned = OptimizeProjections::new().rewrite(plan, &OptimizerContext::new())?.data;
    pruned.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node
            && let Some(relation) = SharedRelation::scanned(scan)
        {
            read.entry(ptr::from_ref(relation.as_ref())).or_default().extend(positions(scan));
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

fn positions(scan: &TableScan) -> Vec<usize> {
    scan.projection.clone().unwrap_or_else(|| (0..scan.source.schema().fields().len()).collect())
}
