//! Sessions that plan a part of a plan.

use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion_catalog::Session;
use std::sync::Arc;

/// The session of a plan, as one that plans a part of it has it as an extension.
pub struct Whole(SessionState);

impl Whole {
    /// The session as it plans what becomes a part of the plan around, whose physical rules come to it then. They are not made for
    /// what they have made: a join that has filters for the scans below it already is not to be turned around any more.
    pub fn left_to_plan_a_part(session: &dyn Session) -> Option<SessionState> {
        let whole = session.as_any().downcast_ref::<SessionState>()?;
        if whole.config().get_extension::<Self>().is_some() {
            return Some(whole.clone());
        }
        let part = SessionStateBuilder::new_from_existing(whole.clone());
        let mut part = part.with_physical_optimizer_rules(vec![]).build();
        // The builder would have a session of another configuration make its catalog anew.
        part.config_mut().set_extension(Arc::new(Self(whole.clone())));
        Some(part)
    }

    /// The session that plans the whole.
    pub fn session(&self) -> &dyn Session {
        &self.0
    }

    /// The session that plans a whole, where this one plans a part of one.
    pub fn of(session: &dyn Session) -> Option<Arc<Self>> {
        session.config().get_extension()
    }
}
