//! Sessions that plan a subplan within another plan.

use datafusion::execution::session_state::SessionState;
use datafusion::prelude::SessionConfig;
use datafusion_catalog::Session;
use std::sync::Arc;

/// The session of the whole plan, as an extension of a session that plans a subplan.
pub struct OuterSession(SessionState);

impl OuterSession {
    /// Returns the session for planning a subplan that becomes part of another physical plan. The physical rules then
    /// run over the subplan a second time. They do not swap the inputs of a join that pushes dynamic filters to a scan,
    /// so dynamic filters are disabled for the subplan.
    pub fn left_to_plan_a_part(session: &dyn Session) -> Option<SessionState> {
        let whole = session.as_any().downcast_ref::<SessionState>()?;
        let mut part = whole.clone();
        if Self::from_session(whole).is_none() {
            part.config_mut().set_extension(Arc::new(Self(whole.clone())));
            without_dynamic_filters(part.config_mut());
        }
        Some(part)
    }

    /// Returns the session of the whole plan.
    pub fn session(&self) -> &dyn Session {
        &self.0
    }

    /// Returns the session of the whole plan, if this session plans a subplan.
    pub fn from_session(session: &dyn Session) -> Option<Arc<Self>> {
        session.config().get_extension()
    }
}

/// Disables dynamic filter pushdown.
pub fn without_dynamic_filters(config: &mut SessionConfig) {
    let options = &mut config.options_mut().optimizer;
    options.enable_join_dynamic_filter_pushdown = false;
    options.enable_topk_dynamic_filter_pushdown = false;
    options.enable_aggregate_dynamic_filter_pushdown = false;
}
