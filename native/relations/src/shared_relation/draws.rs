//! Random numbers that must be the same for several readers of a relation.
//!
//! ```sql
//! WITH noise AS MATERIALIZED (SELECT k, random() AS r FROM w), loss AS (SELECT SUM(w.val * r) AS l FROM w JOIN noise ON noise.k = w.k)
//! SELECT grad((SELECT l FROM loss), val) FROM w                           -- draws once: the sweep computes noise in its own place
//! SELECT grad((SELECT l FROM loss), val), (SELECT l FROM loss) FROM w     -- would draw for the sweep, and for the value
//! ```

use datafusion_common::{Result, plan_err};
use datafusion_expr::LogicalPlan;
use std::sync::Arc;

use super::relation::SharedRelation;

/// The relations that a statement scans whose readers have to have the same draws.
pub struct DrawingRelations(Vec<Arc<SharedRelation>>);

impl DrawingRelations {
    /// Finds those that a plan and other relations in it scan.
    ///
    /// # Errors
    /// If the plan cannot be traversed.
    pub fn read_by(plan: &LogicalPlan) -> Result<Self> {
        let mut relations = SharedRelation::scanned_in(plan)?;
        relations.retain(|relation| relation.shared_draws().is_some());
        Ok(Self(relations))
    }

    /// Refuses what the statement has become if it computes one of them in two places.
    ///
    /// # Errors
    /// If it does, or cannot be traversed.
    pub fn check(&self, plan: &LogicalPlan) -> Result<()> {
        if self.0.is_empty() {
            return Ok(());
        }
        let scanned = Self::read_by(plan)?.0;
        for relation in &self.0 {
            let Some(draws) = relation.shared_draws() else { continue };
            let scans =
                scanned.iter().filter_map(|other| other.shared_draws()).filter(|other| Arc::ptr_eq(other, draws));
            if draws.written_out() + scans.count() > 1 {
                let name = relation.name();
                return plan_err!(
                    "{name} draws random numbers once for all that read it, AS MATERIALIZED, and a derivative beside what else reads it \
                     would draw others. Keep its rows in a table, CREATE TABLE {name} AS SELECT ..."
                );
            }
        }
        Ok(())
    }
}
