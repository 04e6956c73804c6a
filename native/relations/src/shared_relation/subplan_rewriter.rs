//! Rewrites the plans of shared relations.

use datafusion_common::Result;
use datafusion_common::tree_node::Transformed;
use datafusion_expr::{LogicalPlan, TableScan};
use std::sync::Arc;

use super::relation::SharedRelation;

/// The shared relations that have been visited, each with its replacement. A relation whose plan does not change
/// replaces itself.
///
/// However many places of a plan read a relation, its plan is rewritten once, so it is still computed once.
#[derive(Debug, Default)]
pub struct Replaced {
    known: Vec<(Arc<SharedRelation>, Arc<SharedRelation>)>,
    /// Whether they are CTEs and views alone.
    are_common: bool,
}

impl Replaced {
    /// Returns what takes the place of a relation, whose plan `rewrite` rewrites with those that it reads.
    pub fn by(
        &mut self,
        relation: &Arc<SharedRelation>,
        rewrite: impl FnOnce(LogicalPlan, &mut Self) -> Result<Transformed<LogicalPlan>>,
    ) -> Result<Arc<SharedRelation>> {
        if let Some((_, other)) = self.known.iter().find(|(known, _)| Arc::ptr_eq(known, relation)) {
            return Ok(Arc::clone(other));
        }
        let rewritten = rewrite(relation.plan().clone(), self)?;
        let other =
            if rewritten.transformed { Arc::new(relation.with_plan(rewritten.data)) } else { Arc::clone(relation) };
        self.known.push((Arc::clone(relation), Arc::clone(&other)));
        Ok(other)
    }

    #[recursive::recursive]
    fn rewritten(&mut self, plan: LogicalPlan, rewrite: Rewrite) -> Result<Transformed<LogicalPlan>> {
        self.scans_rewritten(plan, rewrite)?.transform_data(rewrite)
    }

    fn scans_rewritten(&mut self, plan: LogicalPlan, rewrite: Rewrite) -> Result<Transformed<LogicalPlan>> {
        plan.transform_up_with_subqueries(|node| match node {
            LogicalPlan::TableScan(scan) => Ok(self.scanned(scan, rewrite)?.update_data(LogicalPlan::TableScan)),
            other => Ok(Transformed::no(other)),
        })
    }

    /// Returns a scan of what takes the place of a relation.
    fn scanned(&mut self, scan: TableScan, rewrite: Rewrite) -> Result<Transformed<TableScan>> {
        let relation = SharedRelation::scanned(&scan).filter(|relation| !self.are_common || relation.is_common());
        let Some(relation) = relation else { return Ok(Transformed::no(scan)) };
        let other = self.by(&relation, |plan, replaced| replaced.rewritten(plan, rewrite))?;
        if Arc::ptr_eq(&other, &relation) {
            return Ok(Transformed::no(scan));
        }
        Ok(Transformed::yes(other.scan_in_place_of(scan)))
    }
}

/// What rewrites a plan.
type Rewrite<'r> = &'r mut dyn FnMut(LogicalPlan) -> Result<Transformed<LogicalPlan>>;

/// Returns a plan rewritten, and before it those of the shared relations that it reads, each once.
///
/// # Errors
/// If a plan cannot be rewritten.
pub fn each_rewritten(plan: LogicalPlan, rewrite: Rewrite) -> Result<Transformed<LogicalPlan>> {
    Replaced::default().rewritten(plan, rewrite)
}

/// Returns a plan whose CTEs and views, those that are shared relations, are rewritten, each once.
///
/// # Errors
/// If one of them cannot be rewritten.
pub fn common_rewritten(plan: LogicalPlan, rewrite: Rewrite) -> Result<LogicalPlan> {
    let mut replaced = Replaced { are_common: true, ..Replaced::default() };
    Ok(replaced.scans_rewritten(plan, rewrite)?.data)
}
