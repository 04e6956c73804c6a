//! What a statement of a host has here.

use datafusion::common::Result;
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::context::SessionState;
use datafusion::prelude::SessionConfig;
use datafusion_ffi::execution::FFI_TaskContext;
use std::sync::Arc;
use xql_relations::DerivativeOptions;

use crate::functions::Functions;
use crate::lent::{HostContext, Lend};
use crate::own::defaults;

/// A session as this library plans for it.
pub struct Guest {
    /// Its settings, with the rules by which a statement is differentiated and optimized.
    pub state: SessionState,
    /// Its functions.
    pub functions: Functions,
}

impl Guest {
    /// What a session of a host is here.
    ///
    /// # Errors
    /// If its settings cannot be read.
    pub fn of(session: FFI_TaskContext, derivatives: DerivativeOptions) -> Result<Self> {
        let host = Arc::new(HostContext(session));
        let config = SessionConfig::try_from(&host.config())?;
        let functions = Functions::of(&host.0, config.clone());
        let mut options = config;
        options.options_mut().extensions.insert(derivatives);
        let state = SessionStateBuilder::new_from_existing(defaults().clone())
            .with_config(options)
            .with_physical_optimizer_rule(Arc::new(Lend(host)))
            .build();
        Ok(Self { state, functions })
    }
}
