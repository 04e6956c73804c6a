//! The registry of sessions, by identifier.

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

/// A registered session with the planner that it had before.
pub struct RegisteredSession {
    /// The planner that the session had before.
    fallback: QueryPlanner,
    /// Whether that planner is of another library than the session.
    has_other_planner: bool,
    /// Whether a planner of another library has been installed in front, and one of this library in front of that.
    is_behind: AtomicBool,
    /// Encodes and decodes logical plans in the host.
    logical_codec: Arc<dyn LogicalExtensionCodec>,
    /// The session, as long as it exists.
    session: FFI_TaskContextProvider,
    /// The identifier of the session.
    id: String,
    /// The state that all planners of the session share.
    state: Arc<SharedState>,
}

/// A decoded plan of the host.
pub struct DecodedPlan {
    /// The target of `COPY ... TO`.
    pub copy: CopyTarget,
    /// The plan.
    pub plan: LogicalPlan,
    /// Whether the plan's CTEs are computed once even without a derivative.
    pub shares_ctes: bool,
}

/// The state of a session.
#[derive(Default)]
struct SharedState {
    /// Its options for derivatives.
    options: Mutex<DerivativeOptions>,
    /// The names in its statements.
    names: Mutex<StatementNames>,
    /// The relations that its plans scan.
    relations: Mutex<RelationCache>,
    /// The session of this library, as of its last statement.
    local: Mutex<Option<Arc<LocalSession>>>,
    /// The plan that reserves memory, once it is planned.
    reservation_plan: OnceCell<Arc<dyn ExecutionPlan>>,
}

static SESSIONS: LazyLock<Mutex<HashMap<String, Weak<RegisteredSession>>>> = LazyLock::new(Mutex::default);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RegisteredSession {
    /// Registers a session. It is dropped with its planners of this library.
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
        // The codec of a session is of its host.
        let has_other_planner = (fallback.library_marker_id)() != (codec.library_marker_id)();
        let state = Self::find(&id).map_or_else(|_| Arc::default(), |before| before.mark_behind());
        let is_behind = AtomicBool::new(false);
        let registered = Arc::new(Self { fallback, has_other_planner, is_behind, logical_codec, session, id, state });
        let mut sessions = lock(&SESSIONS);
        sessions.retain(|_, planner| planner.strong_count() > 0);
        sessions.insert(registered.id.clone(), Arc::downgrade(&registered));
        Ok(registered)
    }

    /// Marks this planner as behind another one, and returns the state of its session.
    fn mark_behind(&self) -> Arc<SharedState> {
        self.is_behind.store(true, Ordering::Relaxed);
        Arc::clone(&self.state)
    }

    /// Returns the planner behind this one, with the codecs of `planner`: a host replaces these when it installs a planner.
    pub fn fallback(&self, planner: &QueryPlanner) -> QueryPlanner {
        let mut fallback = self.fallback.clone();
        fallback.logical_codec = planner.logical_codec.clone();
        fallback.physical_codec = planner.physical_codec.clone();
        fallback
    }

    /// Returns whether the planner behind this one is of another library than the session.
    pub fn has_other_planner(&self) -> bool {
        self.has_other_planner
    }

    /// Returns whether a planner of another library sees the plans that this planner returns or delegates.
    pub fn is_visible_to_others(&self) -> bool {
        self.has_other_planner || self.is_behind.load(Ordering::Relaxed)
    }

    /// Returns whether the session has this identifier.
    pub fn has_id(&self, session: &str) -> bool {
        self.id == session
    }

    /// Returns the plan that reserves memory, once it is planned.
    pub fn reservation_plan(&self) -> &OnceCell<Arc<dyn ExecutionPlan>> {
        &self.state.reservation_plan
    }

    /// Returns the key of the session within the process.
    pub fn key(&self) -> usize {
        Arc::as_ptr(&self.state) as usize
    }

    /// Finds the session with this identifier.
    ///
    /// # Errors
    /// If it is not registered.
    pub fn find(session: &str) -> Result<Arc<Self>> {
        let registered = lock(&SESSIONS).get(session).and_then(Weak::upgrade);
        registered.ok_or_else(|| plan_datafusion_err!("the session {session} is not registered with xql-ffi"))
    }

    /// Returns the session of this library for these settings.
    ///
    /// # Errors
    /// If the settings cannot be read.
    pub fn local_session(&self, config: &FFI_SessionConfig) -> Result<Arc<LocalSession>> {
        let (options, before) = (lock(&self.state.options).clone(), lock(&self.state.local).clone());
        let local = LocalSession::for_config(config, options, before)?;
        *lock(&self.state.local) = Some(Arc::clone(&local));
        Ok(local)
    }

    /// Decodes a plan of the host.
    ///
    /// # Errors
    /// If it cannot be decoded.
    pub fn decode(&self, plan: &[u8], context: &TaskContext, codec: &dyn LogicalExtensionCodec) -> Result<DecodedPlan> {
        let node = LogicalPlanNode::decode(plan).map_err(|error| DataFusionError::External(Box::new(error)))?;
        let (copy, node) = CopyTarget::split_from(node);
        let plan = node.try_into_logical_plan(context, codec)?;
        let shares_ctes = statement_table::shares_ctes(&plan)?;
        Ok(DecodedPlan { copy, plan: self.reunify(plan, &mut vec![])?, shares_ctes })
    }

    /// Decodes the scan of a table or view, for a statement that is planned here.
    ///
    /// # Errors
    /// If it cannot be decoded.
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

    /// Restores the identity of relations, and inlines the statements that the plan scans.
    fn reunify(&self, plan: LogicalPlan, held: &mut Vec<Arc<NamedQuery>>) -> Result<LogicalPlan> {
        let mut relations = lock(&self.state.relations);
        match as_whole_statement(&plan)? {
            Some(plan) => Ok(plan),
            None => relations.reunify(inline_statements(plan)?, &lock(&self.state.names), held),
        }
    }

    /// Resolves the file format of a target from the session's statements.
    ///
    /// # Errors
    /// If statements specify several formats, or an option that the format does not have.
    pub async fn resolve_format(&self, copy: CopyTarget, session: &SessionState) -> Result<CopyTarget> {
        let Some(target) = copy.url() else { return Ok(copy) };
        let statement = lock(&self.state.names).copies.find(target)?;
        let format = match statement {
            Some(statement) => statement_format(statement, session).await?,
            None => None,
        };
        copy.with_format(format)
    }

    /// Returns the context of the session in the host, and the session of this library.
    ///
    /// # Errors
    /// If the session is gone, or its settings cannot be read.
    pub fn snapshot(&self) -> Result<(FFI_TaskContext, Arc<LocalSession>)> {
        let context = self.context()?;
        // SAFETY: the function belongs to the owner of the handle.
        let local = self.local_session(&unsafe { (context.session_config)(&context) })?;
        Ok((context, local))
    }

    fn context(&self) -> Result<FFI_TaskContext> {
        // SAFETY: the function belongs to the owner of the handle.
        match unsafe { (self.session.task_ctx)(&self.session) } {
            FFI_Result::Ok(context) => Ok(context),
            FFI_Result::Err(error) => Err(DataFusionError::Ffi(error.to_string())),
        }
    }
}

/// Encodes a plan for `session`.
///
/// # Errors
/// If it cannot be encoded.
pub fn encode(
    plan: &LogicalPlan,
    session: impl Fn() -> Option<FFI_TaskContext> + 'static,
    codec: &dyn LogicalExtensionCodec,
) -> Result<LogicalPlanNode> {
    with_target(session, || LogicalPlanNode::try_from_logical_plan(plan, codec))
}

/// Returns whether a session is registered.
pub fn is_registered(session: &str) -> bool {
    RegisteredSession::find(session).is_ok()
}

/// Returns whether the planner behind that of a session is of another library.
pub fn has_other_planner(session: &str) -> bool {
    RegisteredSession::find(session).is_ok_and(|registered| registered.has_other_planner())
}

/// Sets an option of a session, as `SET xql.share_relations = false` does where the session knows the option.
///
/// # Errors
/// If there is no such session or option, or the option does not take the value.
pub fn set_option(session: &str, key: &str, value: &str) -> Result<()> {
    lock(&RegisteredSession::find(session)?.state.options).set(key, value)
}

/// Returns whether a session computes CTEs once even without a derivative.
pub fn shares_ctes(session: &str) -> bool {
    RegisteredSession::find(session).is_ok_and(|registered| lock(&registered.state.options).share_ctes)
}

/// Records the names in a statement of a session.
///
/// # Errors
/// If there is no such session.
pub fn record_statement(session: &str, sql: &str) -> Result<()> {
    lock(&RegisteredSession::find(session)?.state.names).record(sql);
    Ok(())
}

/// Decodes the function that an expression calls.
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

/// Shows the plan of a statement before it is differentiated, with common subplans as leaves.
///
/// # Errors
/// If there is no such session, or the plan cannot be decoded.
pub fn show_plan(session: &str, plan: &[u8]) -> Result<String> {
    let registered = RegisteredSession::find(session)?;
    let (_, local) = registered.snapshot()?;
    let codec = registered.logical_codec.as_ref();
    let read = on_stack(|| Ok(registered.decode(plan, &local.context, codec)?.plan.display_indent().to_string()));
    forget(plan);
    read
}

/// Differentiates and optimizes the plan of a statement, encoded before and after.
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
