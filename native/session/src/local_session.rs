//! What a statement of a host has here.

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

/// A session of a host as this library plans for it, until a setting changes.
#[derive(Debug)]
pub struct LocalSession {
    /// The settings and options that it was made for.
    key: (Vec<(String, String)>, DerivativeOptions),
    /// DataFusion's functions, and the rules by which a statement is differentiated and optimized.
    state: SessionState,
    /// The context in which plans are read.
    pub context: Arc<TaskContext>,
}

impl LocalSession {
    /// What a session with these settings is here, of which `before` is what it was for the statement before.
    ///
    /// # Errors
    /// If its settings cannot be read.
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

    /// The session as it was made.
    pub fn state(&self) -> &SessionState {
        &self.state
    }

    /// Whether what several places of a statement read is computed once even without a derivative.
    pub fn shares_ctes(&self) -> bool {
        self.key.1.share_ctes
    }

    /// The session for a statement that begins now, of which what several places read is computed once if `shares_ctes` says so or the
    /// session does.
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

/// A session in which plans of a host run below nodes of this library. These have the memory of the session of the host, if it is lent,
/// and spill to files in the folder that the system has for temporary ones.
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
