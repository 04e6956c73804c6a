//! Random numbers that several readers of a relation have to have alike.
//!
//! ```sql
//! WITH noise AS MATERIALIZED (SELECT k, random() AS r FROM w), loss AS (SELECT SUM(w.val * r) AS l FROM w JOIN noise ON noise.k = w.k)
//! SELECT grad((SELECT l FROM loss), val) FROM w                           -- draws once: the sweep computes noise in its own place
//! SELECT grad((SELECT l FROM loss), val), (SELECT l FROM loss) FROM w     -- would draw for the sweep, and for the value
//! ```

use datafusion_common::tree_node::TreeNodeRecursion;
use datafusion_common::{Result, plan_err};
use datafusion_expr::LogicalPlan;
use std::sync::Arc;

use super::relation::SharedRelation;
use crate::vocabulary::nodes::draws_itself;

/// The relations of a statement whose readers have to have the same draws.
pub struct Draws {
    /// The name of one of them.
    name: String,
    /// How many nodes of the statement draw, where each relation is computed once.
    nodes: usize,
}

impl Draws {
    /// Returns those of a statement, if it has such relations.
    ///
    /// # Errors
    /// If the plan cannot be traversed.
    pub fn held_in(plan: &LogicalPlan) -> Result<Option<Self>> {
        let mut relations = vec![];
        let nodes = drawing_nodes(plan, &mut relations)?;
        let held = relations.iter().find(|relation| relation.draws_once());
        Ok(held.map(|relation| Self { name: relation.name().to_owned(), nodes }))
    }

    /// Refuses a plan that draws in more places than the statement.
    ///
    /// # Errors
    /// If it does, or cannot be traversed.
    pub fn check(&self, plan: &LogicalPlan) -> Result<()> {
        if drawing_nodes(plan, &mut vec![])? <= self.nodes {
            return Ok(());
        }
        let name = &self.name;
        plan_err!(
            "{name} draws random numbers once for all that read it, AS MATERIALIZED, and a derivative beside what else reads it would draw \
             others. Keep its rows in a table, CREATE TABLE {name} AS SELECT ..."
        )
    }
}

/// Returns how many nodes of a plan and of the relations that it scans draw. Adds these relations, each once.
#[recursive::recursive]
fn drawing_nodes(plan: &LogicalPlan, relations: &mut Vec<Arc<SharedRelation>>) -> Result<usize> {
    let mut nodes = 0;
    plan.apply_with_subqueries(|node| {
        nodes += usize::from(draws_itself(node));
        if let Some(relation) = SharedRelation::scanned_by(node)
            && !relations.iter().any(|known| Arc::ptr_eq(known, &relation))
        {
            relations.push(Arc::clone(&relation));
            nodes += drawing_nodes(relation.plan(), relations)?;
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(nodes)
}
