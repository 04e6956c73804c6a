//! Planning of a statement: decode, differentiate, optimize, delegate or execute here.

use datafusion::catalog::default_table_source::source_as_provider;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DFSchema, DataFusionError, Result, internal_err};
use datafusion::datasource::listing::ListingTable;
use datafusion::execution::context::SessionState;
use datafusion::logical_expr::{DmlStatement, LogicalPlan};
use datafusion::physical_plan::ExecutionPlan;
use datafusion_ffi::ffi_option::FFI_Result;
use datafusion_proto::bytes::{
    physical_plan_from_bytes_with_extension_codec, physical_plan_to_bytes_with_extension_codec,
};
use datafusion_proto::logical_plan::LogicalExtensionCodec;
use datafusion_proto::physical_plan::PhysicalExtensionCodec;
use prost::Message;
use stabby::vec::Vec as SVec;
use std::sync::Arc;
use xql_guard::{Interruption, Waiting};
use xql_relations::is_computed_here;

use crate::abi::{QueryPlanner, SessionRef};
use crate::codec::{forget, forget_delegation};
use crate::copy_to::CopyTarget;
use crate::explain::{show_explain, without_tree};
use crate::host_exec::HostContext;
use crate::host_memory::{HostMemory, reservation_plan};
use crate::local_exec;
use crate::local_session::with_host_memory;
use crate::plan_handle::{DelegatedPlanning, PlanHandleExec, ReturnMode};
use crate::registry::{DecodedPlan, RegisteredSession, encode};
use crate::runtime::{on_stack, on_stack_while_polled, runtime};

/// A statement that is being planned.
pub struct Statement {
    /// Its registered session.
    pub registered: Arc<RegisteredSession>,
    /// The planner that the session had before.
    pub fallback: QueryPlanner,
    /// Encodes and decodes logical plans in the host.
    pub logical_codec: Arc<dyn LogicalExtensionCodec>,
    /// Encodes and decodes physical plans in the host.
    pub physical_codec: Arc<dyn PhysicalExtensionCodec>,
    /// Its session in the host, borrowed while the statement is planned.
    pub session: SessionRef,
}

impl Statement {
    /// Plans an encoded logical plan, and returns the encoded physical plan.
    ///
    /// # Errors
    /// If it cannot be planned, or a derivative cannot be taken.
    pub async fn plan(&self, plan: &[u8]) -> Result<SVec<u8>> {
        let local = self.registered.local_session(&self.session.config())?;
        let read = on_stack(|| self.registered.decode(plan, &local.context, self.logical_codec.as_ref()))?;
        let DecodedPlan { copy, plan, shares_ctes } = read;
        let schema = Arc::clone(plan.schema());
        let state = Arc::new(local.start_query(shares_ctes));
        let copy = self.registered.resolve_format(copy, &state).await?;
        let plan = without_tree(optimize(&state, plan).await?);
        let mut host_error = None;
        if !is_computed_here(&plan)? {
            match self.plan_in_host(&plan, &copy, &state).await {
                Ok(planned) => return Ok(planned),
                // A planner of another library may refuse a statement, and must not be bypassed.
                Err(error) if self.registered.has_other_planner() => return Err(error),
                // A plan that `datafusion-proto` cannot encode, such as a deep expression, runs here.
                Err(error) => host_error = Some(error),
            }
        }
        let host = Arc::new(HostContext(self.session.task_context()));
        let memory = self.host_memory(&state, &host).await;
        let state = with_host_memory(state.as_ref().clone(), host, memory)?;
        let planned = on_stack_while_polled(&plan, self.plan_locally(&plan, &copy, &state, &schema)).await?;
        planned.map_err(|error| host_error.unwrap_or(error))
    }

    /// Plans a statement that the host executes.
    async fn plan_in_host(&self, plan: &LogicalPlan, copy: &CopyTarget, state: &SessionState) -> Result<SVec<u8>> {
        let LogicalPlan::Explain(explain) = plan else {
            return self.plan_by_host(plan, copy, ReturnMode::Number).await;
        };
        if !explain.logical_optimization_succeeded {
            return internal_err!("there is no plan to be shown");
        }
        let host_plan = self.decode_host_plan(&explain.plan, state).await?;
        self.encode_handle(show_explain(explain, state, host_plan).await?)
    }

    /// Plans a statement that this library executes. The host still writes its result.
    async fn plan_locally(
        &self,
        plan: &LogicalPlan,
        copy: &CopyTarget,
        state: &SessionState,
        schema: &DFSchema,
    ) -> Result<SVec<u8>> {
        match (plan, copy) {
            (LogicalPlan::Dml(statement), _) => {
                let rows = local_exec::plan_locally(&statement.input, state, None).await?;
                let input = Arc::new(local_exec::scan_plan(rows, true)?);
                let statement = LogicalPlan::Dml(DmlStatement { input, ..statement.clone() });
                self.plan_by_host(&statement, copy, ReturnMode::Number).await
            }
            (plan, CopyTarget(Some(_))) => {
                let rows = local_exec::scan_plan(local_exec::plan_locally(plan, state, None).await?, true)?;
                self.plan_by_host(&rows, copy, ReturnMode::Number).await
            }
            (plan, CopyTarget(None)) => self.encode_handle(local_exec::plan_locally(plan, state, Some(schema)).await?),
        }
    }

    /// Returns the means to reserve memory of the session. If the planner behind ours is of another library, there is none, and so no
    /// limit.
    async fn host_memory(&self, state: &SessionState, host: &Arc<HostContext>) -> Option<HostMemory> {
        if self.registered.has_other_planner() {
            return None;
        }
        let planned = self.registered.reservation_plan().get_or_try_init(|| async {
            let planned = self.delegate(&reservation_plan()?, &CopyTarget(None), ReturnMode::Number).await?;
            physical_plan_from_bytes_with_extension_codec(&planned, &state.task_ctx(), self.physical_codec.as_ref())
        });
        HostMemory::new(planned.await.ok()?, Arc::clone(host)).ok()?
    }

    /// Encodes a plan of this library as a handle.
    fn encode_handle(&self, plan: Arc<dyn ExecutionPlan>) -> Result<SVec<u8>> {
        let captured = Arc::new(PlanHandleExec(plan));
        let bytes = physical_plan_to_bytes_with_extension_codec(captured, self.physical_codec.as_ref())?;
        Ok(SVec::from(bytes.as_ref()))
    }

    /// Plans a statement in the host, and decodes the physical plan as nodes of this library.
    async fn decode_host_plan(&self, plan: &LogicalPlan, state: &SessionState) -> Result<Arc<dyn ExecutionPlan>> {
        let bytes = self.plan_by_host(plan, &CopyTarget(None), ReturnMode::Bytes).await?;
        physical_plan_from_bytes_with_extension_codec(&bytes, &state.task_ctx(), self.physical_codec.as_ref())
    }

    /// Delegates a plan to the planner that the session had before. The result is returned in the given mode, unless a planner of another
    /// library sees it: that one gets the host's plan as bytes, as far as `datafusion-proto` can encode it.
    async fn plan_by_host(&self, plan: &LogicalPlan, copy: &CopyTarget, mode: ReturnMode) -> Result<SVec<u8>> {
        if !self.registered.is_visible_to_others() {
            return self.delegate(plan, copy, mode).await;
        }
        if mode != ReturnMode::Bytes && !can_encode_as_bytes(plan)? {
            return self.delegate(plan, copy, ReturnMode::Leaf).await;
        }
        match self.delegate(plan, copy, ReturnMode::Bytes).await {
            Ok(planned) => Ok(planned),
            Err(error) => self.delegate(plan, copy, ReturnMode::Leaf).await.map_err(|_| error),
        }
    }

    /// Delegates a plan to the planner that the session had before, in this mode.
    async fn delegate(&self, plan: &LogicalPlan, copy: &CopyTarget, mode: ReturnMode) -> Result<SVec<u8>> {
        let written = on_stack(|| {
            let session = self.session.clone();
            let node = encode(plan, move || Some(session.task_context()), self.logical_codec.as_ref())?;
            Ok(copy.wrap(node).encode_to_vec())
        })?;
        let (bytes, session) = (SVec::from(written.as_slice()), self.session.clone());
        let planned = async move {
            // SAFETY: the function belongs to the owner of the planner, and the session is borrowed as long as this future runs.
            unsafe { (self.fallback.create_physical_plan)(&self.fallback, bytes, session) }.await
        };
        let planning = DelegatedPlanning::new(planned, self.registered.key(), mode);
        let id = planning.id();
        let planned = on_stack_while_polled(plan, planning).await?;
        forget(&written);
        match planned {
            FFI_Result::Ok(bytes) => Ok(bytes),
            FFI_Result::Err(error) => {
                forget_delegation(id);
                Err(DataFusionError::Ffi(error.to_string()))
            }
        }
    }
}

/// Returns whether a library in between gets the host's plan of this statement as bytes. Tables in memory are excluded: encoding would copy
/// their rows, and `datafusion-proto` 55 decodes a scan of no columns as one of all. So are DML statements, which DataFusion may execute
/// while planning and so must be planned once.
fn can_encode_as_bytes(plan: &LogicalPlan) -> Result<bool> {
    let mut can_encode = true;
    plan.apply_with_subqueries(|node| {
        can_encode = match node {
            LogicalPlan::Dml(_) => false,
            LogicalPlan::TableScan(scan) => source_as_provider(&scan.source)?.is::<ListingTable>(),
            _ => true,
        };
        Ok(if can_encode { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    })?;
    Ok(can_encode)
}

/// Differentiates and optimizes a plan in a thread of its own, so that the host can be interrupted. An abandoned optimization ends at its
/// next step.
async fn optimize(state: &Arc<SessionState>, plan: LogicalPlan) -> Result<LogicalPlan> {
    let state = Arc::clone(state);
    let interruption = Interruption::default();
    let _waiting = Waiting::new(&interruption);
    let work = move || interruption.watched(|| on_stack(|| state.optimize(&plan)));
    let optimizing = runtime().spawn_blocking(work);
    optimizing.await.map_err(|error| DataFusionError::External(Box::new(error)))?
}
