//! The session of this library for a session of the host.

use datafusion::common::Result;
use datafusion::execution::context::SessionState;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::execution::{SessionStateBuilder, TaskContext};
use datafusion::prelude::SessionConfig;
use datafusion_ffi::session::config::FFI_SessionConfig;
use std::sync::Arc;
use xql_relations::DerivativeOptions;

use crate::abi::config_entries;
use crate::host_exec::{HostContext, WrapHostExec};
use crate::host_memory::HostMemory;
use crate::pool::HostPool;
use crate::runtime::builtin_state;

/// The session of this library for one configuration of a host's session.
#[derive(Debug)]
pub struct LocalSession {
    /// The settings and options that it was built for.
    key: (Vec<(String, String)>, DerivativeOptions),
    /// DataFusion's functions, and the rules that differentiate and optimize.
    state: SessionState,
    /// The context in which plans are decoded.
    pub context: Arc<TaskContext>,
}

impl LocalSession {
    /// Returns the session for these settings, which is `previous` if they have not changed.
    ///
    /// # Errors
    /// If the settings cannot be read.
    pub fn for_config(
        config: &FFI_SessionConfig,
        options: DerivativeOptions,
        previous: Option<Arc<Self>>,
    ) -> Result<Arc<Self>> {
        let key = (config_entries(config), options);
        if let Some(previous) = previous.filter(|previous| previous.key == key) {
            return Ok(previous);
        }
        let mut config = SessionConfig::try_from(config)?;
        config.options_mut().extensions.insert(key.1.clone());
        let state = SessionStateBuilder::new_from_existing(builtin_state().clone()).with_config(config).build();
        let context = state.task_ctx();
        Ok(Arc::new(Self { key, state, context }))
    }

    /// Returns the session as it was built.
    pub fn state(&self) -> &SessionState {
        &self.state
    }

    /// Returns whether CTEs are computed once even without a derivative.
    pub fn shares_ctes(&self) -> bool {
        self.key.1.share_ctes
    }

    /// Returns a session for a statement that starts now. It computes CTEs once if `shares_ctes` or the session says so.
    pub fn start_query(&self, shares_ctes: bool) -> SessionState {
        let mut state = self.state.clone();
        if shares_ctes {
            let options = DerivativeOptions { share_ctes: true, ..self.key.1.clone() };
            state.config_mut().options_mut().extensions.insert(options);
        }
        state.mark_start_execution();
        state
    }
}

/// Returns a session whose plans run over nodes of the host. They use the host's memory, if it can be reserved, and spill to the system's
/// temporary folder.
///
/// # Errors
/// If the system has no such folder.
pub fn with_host_memory(
    state: SessionState,
    host: Arc<HostContext>,
    memory: Option<HostMemory>,
) -> Result<SessionState> {
    let mut runtime = RuntimeEnvBuilder::new();
    if let Some(memory) = memory {
        runtime = runtime.with_memory_pool(Arc::new(HostPool::new(memory)));
    }
    let state = SessionStateBuilder::new_from_existing(state).with_runtime_env(runtime.build_arc()?);
    Ok(state.with_physical_optimizer_rule(Arc::new(WrapHostExec(host))).build())
}
