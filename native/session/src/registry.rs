//! The sessions that are registered, by their identifiers.

use datafusion::catalog::TableProvider;
use datafusion::common::config::ExtensionOptions;
use datafusion::common::{DataFusionError, Result, plan_datafusion_err, plan_err};
use datafusion::execution::TaskContext;
use datafusion::execution::context::SessionState;
use datafusion::logical_expr::{Expr, LogicalPlan, ScalarUDF};
use datafusion::physical_plan::ExecutionPlan;
use datafusion_ffi::execution::{FFI_TaskContext, FFI_TaskContextProvider};
use datafusion_ffi::ffi_option::FFI_Result;
use datafusion_ffi::proto::logical_extension_codec::FFI_LogicalExtensionCodec;
use datafusion_ffi::session::config::FFI_SessionConfig;
use datafusion_proto::logical_plan::from_proto::parse_expr;
use datafusion_proto::logical_plan::{AsLogicalPlan, LogicalExtensionCodec};
use datafusion_proto::protobuf::{LogicalExprNode, LogicalPlanNode};
use prost::Message;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use tokio::sync::OnceCell;
use xql_relations::DerivativeOptions;

use crate::abi::QueryPlanner;
use crate::codec::forget;
use crate::copy_to::CopyTarget;
use crate::format::statement_format;
use crate::functions::with_target;
use crate::local_session::LocalSession;
use crate::reunify::{NamedQuery, RelationCache};
use crate::runtime::{builtin_state, on_stack};
use crate::statement_names::StatementNames;
use crate::statement_table::{self, StatementInputs, as_whole_statement, inline_statements};

/// A session that is registered, and a planner that it had.
pub struct RegisteredSession {
    /// The planner that it had before.
    fallback: QueryPlanner,
    /// Whether that is of another library than the session.
    has_other_planner: bool,
    /// Whether there has been one of another library in front, and of this library in front of that.
    is_behind: AtomicBool,
    /// Writes and reads logical plans in the host.
    logical_codec: Arc<dyn LogicalExtensionCodec>,
    /// The session, as long as it is there.
    session: FFI_TaskContextProvider,
    /// The identifier of the session.
    id: String,
    /// What all its planners of this library know.
    state: Arc<SharedState>,
}

/// A plan of a host, as it is read.
pub struct DecodedPlan {
    /// What stands around it.
    pub copy: CopyTarget,
    /// The plan.
    pub plan: LogicalPlan,
    /// Whether what several places of it read is computed once even without a derivative.
    pub shares_ctes: bool,
}

/// What is known of a session.
#[derive(Default)]
struct SharedState {
    /// What it says about derivatives.
    options: Mutex<DerivativeOptions>,
    /// What the names in its statements are.
    names: Mutex<StatementNames>,
    /// What its plans read.
    relations: Mutex<RelationCache>,
    /// What it is here, as of its last statement.
    local: Mutex<Option<Arc<LocalSession>>>,
    /// The plan by which memory of the session is asked for, once it is planned.
    reservation_plan: OnceCell<Arc<dyn ExecutionPlan>>,
}

static SESSIONS: LazyLock<Mutex<HashMap<String, Weak<RegisteredSession>>>> = LazyLock::new(Mutex::default);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RegisteredSession {
    /// Registers a session, which is forgotten with its planners of this library.
    ///
    /// # Errors
    /// If the session is gone.
    pub fn new(
        fallback: QueryPlanner,
        codec: &FFI_LogicalExtensionCodec,
        session: FFI_TaskContextProvider,
    ) -> Result<Arc<Self>> {
        let context: Arc<TaskContext> = (&session).try_into()?;
        let (id, logical_codec) = (context.session_id(), codec.into());
        // The codec of a session is one of its host.
        let has_other_planner = (fallback.library_marker_id)() != (codec.library_marker_id)();
        let state = Self::find(&id).map_or_else(|_| Arc::default(), |before| before.mark_behind());
        let is_behind = AtomicBool::new(false);
        let registered = Arc::new(Self { fallback, has_other_planner, is_behind, logical_codec, session, id, state });
        let mut sessions = lock(&SESSIONS);
        sessions.retain(|_, planner| planner.strong_count() > 0);
        sessions.insert(registered.id.clone(), Arc::downgrade(&registered));
        Ok(registered)
    }

    /// What is known of its session, for a planner in front of this one.
    fn mark_behind(&self) -> Arc<SharedState> {
        self.is_behind.store(true, Ordering::Relaxed);
        Arc::clone(&self.state)
    }

    /// The planner behind this one, with the codecs that this one has as `planner`: a host gives a planner others when one is installed.
    pub fn fallback(&self, planner: &QueryPlanner) -> QueryPlanner {
        let mut fallback = self.fallback.clone();
        fallback.logical_codec = planner.logical_codec.clone();
        fallback.physical_codec = planner.physical_codec.clone();
        fallback
    }

    /// Whether the planner behind this one is of another library than the session.
    pub fn has_other_planner(&self) -> bool {
        self.has_other_planner
    }

    /// Whether another library sees the plans that are made for this planner.
    pub fn is_visible_to_others(&self) -> bool {
        self.has_other_planner || self.is_behind.load(Ordering::Relaxed)
    }

    /// Whether it is the session with this identifier.
    pub fn has_id(&self, session: &str) -> bool {
        self.id == session
    }

    /// The plan by which memory of the session is asked for, once it is planned.
    pub fn reservation_plan(&self) -> &OnceCell<Arc<dyn ExecutionPlan>> {
        &self.state.reservation_plan
    }

    /// Tells the sessions of a process apart.
    pub fn key(&self) -> usize {
        Arc::as_ptr(&self.state) as usize
    }

    /// The session with this identifier.
    ///
    /// # Errors
    /// If it is not registered.
    pub fn find(session: &str) -> Result<Arc<Self>> {
        let registered = lock(&SESSIONS).get(session).and_then(Weak::upgrade);
        registered.ok_or_else(|| plan_datafusion_err!("the session {session} is not registered with xql-ffi"))
    }

    /// What the session is here with these settings.
    ///
    /// # Errors
    /// If its settings cannot be read.
    pub fn local_session(&self, config: &FFI_SessionConfig) -> Result<Arc<LocalSession>> {
        let (options, before) = (lock(&self.state.options).clone(), lock(&self.state.local).clone());
        let local = LocalSession::for_config(config, options, before)?;
        *lock(&self.state.local) = Some(Arc::clone(&local));
        Ok(local)
    }

    /// A plan that the host has written by a codec, and what stands around it.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn decode(&self, plan: &[u8], context: &TaskContext, codec: &dyn LogicalExtensionCodec) -> Result<DecodedPlan> {
        let node = LogicalPlanNode::decode(plan).map_err(|error| DataFusionError::External(Box::new(error)))?;
        let (copy, node) = CopyTarget::split_from(node);
        let plan = node.try_into_logical_plan(context, codec)?;
        let shares_ctes = statement_table::shares_ctes(&plan)?;
        Ok(DecodedPlan { copy, plan: self.reunify(plan, &mut vec![])?, shares_ctes })
    }

    /// The table or view that the host has written a scan of, for a statement that is planned here.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn decode_table(
        &self,
        scan: &[u8],
        context: &TaskContext,
        read: &mut StatementInputs,
    ) -> Result<Arc<dyn TableProvider>> {
        let node = LogicalPlanNode::decode(scan).map_err(|error| DataFusionError::External(Box::new(error)))?;
        let plan = node.try_into_logical_plan(context, self.logical_codec.as_ref())?;
        read.shares_ctes |= statement_table::shares_ctes(&plan)?;
        let plan = self.reunify(plan, &mut read.queries)?;
        lock(&self.state.relations).scanned_table(plan, &lock(&self.state.names))
    }

    /// A plan in which what is one relation is one, with the plans of the statements that it scans.
    fn reunify(&self, plan: LogicalPlan, held: &mut Vec<Arc<NamedQuery>>) -> Result<LogicalPlan> {
        let mut relations = lock(&self.state.relations);
        match as_whole_statement(&plan)? {
            Some(plan) => Ok(plan),
            None => relations.reunify(inline_statements(plan)?, &lock(&self.state.names), held),
        }
    }

    /// What stands around a plan with the format that a statement of the session gives a file.
    ///
    /// # Errors
    /// If statements give it several, or an option is none of the format.
    pub async fn resolve_format(&self, copy: CopyTarget, session: &SessionState) -> Result<CopyTarget> {
        let Some(target) = copy.url() else { return Ok(copy) };
        let statement = lock(&self.state.names).copies.find(target)?;
        let format = match statement {
            Some(statement) => statement_format(statement, session).await?,
            None => None,
        };
        copy.with_format(format)
    }

    /// The session as it is now, in the host and here.
    ///
    /// # Errors
    /// If it is gone, or its settings cannot be read.
    pub fn snapshot(&self) -> Result<(FFI_TaskContext, Arc<LocalSession>)> {
        let context = self.context()?;
        // SAFETY: the function is that of the owner.
        let local = self.local_session(&unsafe { (context.session_config)(&context) })?;
        Ok((context, local))
    }

    fn context(&self) -> Result<FFI_TaskContext> {
        // SAFETY: the function is that of the owner.
        match unsafe { (self.session.task_ctx)(&self.session) } {
            FFI_Result::Ok(context) => Ok(context),
            FFI_Result::Err(error) => Err(DataFusionError::Ffi(error.to_string())),
        }
    }
}

/// A plan as `session` reads it by a codec.
///
/// # Errors
/// If it cannot be written.
pub fn encode(
    plan: &LogicalPlan,
    session: impl Fn() -> Option<FFI_TaskContext> + 'static,
    codec: &dyn LogicalExtensionCodec,
) -> Result<LogicalPlanNode> {
    with_target(session, || LogicalPlanNode::try_from_logical_plan(plan, codec))
}

/// Whether a session is registered.
pub fn is_registered(session: &str) -> bool {
    RegisteredSession::find(session).is_ok()
}

/// Whether a planner of another library is behind that of a session.
pub fn has_other_planner(session: &str) -> bool {
    RegisteredSession::find(session).is_ok_and(|registered| registered.has_other_planner())
}

/// Sets an option of a session, as `SET xql.share_relations = false` does where a session knows it.
///
/// # Errors
/// If there is no such session or option, or the option does not take the value.
pub fn set_option(session: &str, key: &str, value: &str) -> Result<()> {
    lock(&RegisteredSession::find(session)?.state.options).set(key, value)
}

/// Whether the CTEs that a statement of a session reads several times are computed once, even without a derivative.
pub fn shares_ctes(session: &str) -> bool {
    RegisteredSession::find(session).is_ok_and(|registered| lock(&registered.state.options).share_ctes)
}

/// Notes what the names in a statement of a session are.
///
/// # Errors
/// If there is no such session.
pub fn record_statement(session: &str, sql: &str) -> Result<()> {
    lock(&RegisteredSession::find(session)?.state.names).record(sql);
    Ok(())
}

/// The function that an expression calls, as a session writes it.
///
/// # Errors
/// If there is no such session, or the bytes are no call.
pub fn decode_function(session: &str, call: &[u8]) -> Result<Arc<ScalarUDF>> {
    let registered = RegisteredSession::find(session)?;
    let read = on_stack(|| {
        let node = LogicalExprNode::decode(call).map_err(|error| DataFusionError::External(Box::new(error)))?;
        Ok(parse_expr(&node, &builtin_state().task_ctx(), registered.logical_codec.as_ref())?)
    });
    forget(call);
    match read? {
        Expr::ScalarFunction(call) => Ok(call.func),
        other => plan_err!("{other} calls no function"),
    }
}

/// The plan of a statement as `EXPLAIN` shows it before it is differentiated, with what several places read as leaves.
///
/// # Errors
/// If there is no such session, or the plan cannot be read.
pub fn show_plan(session: &str, plan: &[u8]) -> Result<String> {
    let registered = RegisteredSession::find(session)?;
    let (_, local) = registered.snapshot()?;
    let codec = registered.logical_codec.as_ref();
    let read = on_stack(|| Ok(registered.decode(plan, &local.context, codec)?.plan.display_indent().to_string()));
    forget(plan);
    read
}

/// The plan of a statement, differentiated and optimized, both as the session writes and reads them.
///
/// # Errors
/// If there is no such session, or a derivative cannot be taken.
pub fn optimize(session: &str, plan: &[u8]) -> Result<Vec<u8>> {
    let registered = RegisteredSession::find(session)?;
    let (_, local) = registered.snapshot()?;
    let reader = Arc::clone(&registered);
    let codec = registered.logical_codec.as_ref();
    let written = on_stack(|| {
        let DecodedPlan { copy, plan, shares_ctes } = registered.decode(plan, &local.context, codec)?;
        let plan = local.start_query(shares_ctes).optimize(&plan)?;
        Ok(copy.wrap(encode(&plan, move || reader.context().ok(), codec)?).encode_to_vec())
    });
    forget(plan);
    written
}
