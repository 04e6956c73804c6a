//! Shared relations in the place of others.

use datafusion_common::Result;
use datafusion_common::tree_node::Transformed;
use datafusion_expr::LogicalPlan;
use std::sync::Arc;

use super::relation::SharedRelation;

/// Shared relations, each with what takes its place, which is itself if its plan stays as it is.
///
/// However many places of a plan read a relation, its plan is rewritten once, so that it is still computed once.
#[derive(Debug, Default)]
pub struct Replaced(Vec<(Arc<SharedRelation>, Arc<SharedRelation>)>);

impl Replaced {
    /// What takes the place of a relation, whose plan `rewrite` rewrites with those that it reads.
    pub fn by(
        &mut self,
        relation: &Arc<SharedRelation>,
        rewrite: impl FnOnce(LogicalPlan, &mut Self) -> Result<Transformed<LogicalPlan>>,
    ) -> Result<Arc<SharedRelation>> {
        if let Some((_, other)) = self.0.iter().find(|(known, _)| Arc::ptr_eq(known, relation)) {
            return Ok(Arc::clone(other));
        }
        let rewritten = rewrite(relation.plan().clone(), self)?;
        let other =
            if rewritten.transformed { Arc::new(relation.with_plan(rewritten.data)) } else { Arc::clone(relation) };
        self.0.push((Arc::clone(relation), Arc::clone(&other)));
        Ok(other)
    }
}
