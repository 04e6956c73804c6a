//! Sessions that plan a part of a plan.

use datafusion::execution::session_state::SessionState;
use datafusion::prelude::SessionConfig;
use datafusion_catalog::Session;
use std::sync::Arc;

/// The session of a plan, as one that plans a part of it has it as an extension.
pub struct OuterSession(SessionState);

impl OuterSession {
    /// Returns the session as it plans what becomes a part of the plan around, whose physical rules come to it once more then. They do
    /// not turn a join around that hands filters to a scan below it already, so that a part is planned without such filters.
    pub fn left_to_plan_a_part(session: &dyn Session) -> Option<SessionState> {
        let whole = session.as_any().downcast_ref::<SessionState>()?;
        let mut part = whole.clone();
        if Self::of(whole).is_none() {
            part.config_mut().set_extension(Arc::new(Self(whole.clone())));
            without_dynamic_filters(part.config_mut());
        }
        Some(part)
    }

    /// Returns the session that plans the whole.
    pub fn session(&self) -> &dyn Session {
        &self.0
    }

    /// Returns the session that plans a whole, where this one plans a part of one.
    pub fn of(session: &dyn Session) -> Option<Arc<Self>> {
        session.config().get_extension()
    }
}

/// Has no node hand filters to scans below it while it runs.
pub fn without_dynamic_filters(config: &mut SessionConfig) {
    let options = &mut config.options_mut().optimizer;
    options.enable_join_dynamic_filter_pushdown = false;
    options.enable_topk_dynamic_filter_pushdown = false;
    options.enable_aggregate_dynamic_filter_pushdown = false;
}
