//! The sessions that are registered, by their identifiers.

use datafusion::common::config::ExtensionOptions;
use datafusion::common::{DataFusionError, Result, plan_datafusion_err, plan_err};
use datafusion::execution::TaskContext;
use datafusion::logical_expr::{Expr, LogicalPlan, ScalarUDF};
use datafusion::physical_plan::ExecutionPlan;
use datafusion_ffi::execution::{FFI_TaskContext, FFI_TaskContextProvider};
use datafusion_ffi::ffi_option::FFI_Result;
use datafusion_ffi::session::config::FFI_SessionConfig;
use datafusion_proto::logical_plan::from_proto::parse_expr;
use datafusion_proto::logical_plan::{AsLogicalPlan, LogicalExtensionCodec};
use datafusion_proto::protobuf::{LogicalExprNode, LogicalPlanNode};
use prost::Message;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use tokio::sync::OnceCell;
use xql_relations::DerivativeOptions;

use crate::abi::QueryPlanner;
use crate::around::Around;
use crate::crossing::forget;
use crate::functions::written_for;
use crate::guest::Guest;
use crate::identity::identified;
use crate::names::Names;
use crate::own::{defaults, on_stack};

/// A session that is registered.
pub struct Registered {
    /// The planner that it had before.
    pub fallback: QueryPlanner,
    /// Writes and reads logical plans in the host.
    logical_codec: Arc<dyn LogicalExtensionCodec>,
    /// The session, as long as it is there.
    session: FFI_TaskContextProvider,
    /// What it says about derivatives.
    options: Mutex<DerivativeOptions>,
    /// What the names in its statements are.
    names: Mutex<Names>,
    /// What it is here, as of its last statement.
    guest: Mutex<Option<Arc<Guest>>>,
    /// The plan by which memory of the session is asked for, once it is planned.
    pub asking: OnceCell<Arc<dyn ExecutionPlan>>,
}

static SESSIONS: LazyLock<Mutex<HashMap<String, Weak<Registered>>>> = LazyLock::new(Mutex::default);

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Registered {
    /// Registers a session, which is forgotten with its planner.
    ///
    /// # Errors
    /// If the session is gone.
    pub fn new(
        fallback: QueryPlanner,
        logical_codec: Arc<dyn LogicalExtensionCodec>,
        session: FFI_TaskContextProvider,
    ) -> Result<Arc<Self>> {
        let context: Arc<TaskContext> = (&session).try_into()?;
        let (options, names, guest) = (Mutex::default(), Mutex::default(), Mutex::default());
        let asking = OnceCell::new();
        let registered = Arc::new(Self { fallback, logical_codec, session, options, names, guest, asking });
        let mut sessions = locked(&SESSIONS);
        sessions.retain(|_, planner| planner.strong_count() > 0);
        sessions.insert(context.session_id(), Arc::downgrade(&registered));
        Ok(registered)
    }

    fn called(session: &str) -> Result<Arc<Self>> {
        let registered = locked(&SESSIONS).get(session).and_then(Weak::upgrade);
        registered.ok_or_else(|| plan_datafusion_err!("the session {session} is not registered with xql-ffi"))
    }

    /// What the session is here with these settings.
    ///
    /// # Errors
    /// If its settings cannot be read.
    pub fn guest(&self, config: &FFI_SessionConfig) -> Result<Arc<Guest>> {
        let (options, before) = (locked(&self.options).clone(), locked(&self.guest).clone());
        let guest = Guest::of(config, options, before)?;
        *locked(&self.guest) = Some(Arc::clone(&guest));
        Ok(guest)
    }

    /// A plan that the host has written, and what stands around it.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read(&self, plan: &[u8], context: &TaskContext) -> Result<(Around, LogicalPlan)> {
        let node = LogicalPlanNode::decode(plan).map_err(|error| DataFusionError::External(Box::new(error)))?;
        let (around, node) = Around::taken_from(node);
        let plan = node.try_into_logical_plan(context, self.logical_codec.as_ref())?;
        Ok((around, identified(plan, &locked(&self.names))?))
    }

    /// A plan as `session` reads it.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn node(
        &self,
        plan: &LogicalPlan,
        session: impl Fn() -> Option<FFI_TaskContext> + 'static,
    ) -> Result<LogicalPlanNode> {
        written_for(session, || LogicalPlanNode::try_from_logical_plan(plan, self.logical_codec.as_ref()))
    }

    fn context(&self) -> Result<FFI_TaskContext> {
        // SAFETY: the function is that of the owner.
        match unsafe { (self.session.task_ctx)(&self.session) } {
            FFI_Result::Ok(context) => Ok(context),
            FFI_Result::Err(error) => Err(DataFusionError::Ffi(error.to_string())),
        }
    }
}

/// Whether a session is registered.
pub fn is_registered(session: &str) -> bool {
    Registered::called(session).is_ok()
}

/// Sets an option of a session, as `SET xql.share_relations = false` does where a session knows it.
///
/// # Errors
/// If there is no such session or option, or the option does not take the value.
pub fn set_option(session: &str, key: &str, value: &str) -> Result<()> {
    locked(&Registered::called(session)?.options).set(key, value)
}

/// Notes what the names in a statement of a session are.
///
/// # Errors
/// If there is no such session.
pub fn note_statement(session: &str, sql: &str) -> Result<()> {
    locked(&Registered::called(session)?.names).note(sql);
    Ok(())
}

/// The function that an expression calls, as a session writes it.
///
/// # Errors
/// If there is no such session, or the bytes are no call.
pub fn function(session: &str, call: &[u8]) -> Result<Arc<ScalarUDF>> {
    let registered = Registered::called(session)?;
    let read = on_stack(|| {
        let node = LogicalExprNode::decode(call).map_err(|error| DataFusionError::External(Box::new(error)))?;
        Ok(parse_expr(&node, &defaults().task_ctx(), registered.logical_codec.as_ref())?)
    });
    forget(call);
    match read? {
        Expr::ScalarFunction(call) => Ok(call.func),
        other => plan_err!("{other} calls no function"),
    }
}

/// The plan of a statement, differentiated and optimized, both as the session writes and reads them.
///
/// # Errors
/// If there is no such session, or a derivative cannot be taken.
pub fn optimized(session: &str, plan: &[u8]) -> Result<Vec<u8>> {
    let registered = Registered::called(session)?;
    let context = registered.context()?;
    // SAFETY: the function is that of the owner.
    let guest = registered.guest(&unsafe { (context.session_config)(&context) })?;
    let reader = Arc::clone(&registered);
    let written = on_stack(|| {
        let (around, plan) = registered.read(plan, &guest.context)?;
        let plan = guest.begun().optimize(&plan)?;
        Ok(around.put(registered.node(&plan, move || reader.context().ok())?).encode_to_vec())
    });
    forget(plan);
    written
}
