//! A statement on its way to the plan that is executed.

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
use crate::around::Around;
use crate::capture::{Back, Captured, Planning};
use crate::crossing::{forget, forget_handed_on};
use crate::explain::explained;
use crate::guest::lending;
use crate::lent::HostContext;
use crate::loan::{Lender, asking};
use crate::local;
use crate::own::{on_stack, on_stack_while_polled, runtime};
use crate::registered::{ReadPlan, Registered, node};

/// A statement that is being planned.
pub struct Statement {
    /// Its session, as it is registered here.
    pub registered: Arc<Registered>,
    /// The planner that the session had before.
    pub fallback: QueryPlanner,
    /// Writes and reads logical plans in the host.
    pub logical_codec: Arc<dyn LogicalExtensionCodec>,
    /// Writes and reads physical plans in the host.
    pub physical_codec: Arc<dyn PhysicalExtensionCodec>,
    /// Its session, as it is lent for as long as the statement is planned.
    pub session: SessionRef,
}

impl Statement {
    /// The physical plan of a logical one, both as bytes.
    ///
    /// # Errors
    /// If it cannot be planned, or a derivative of it cannot be taken.
    pub async fn planned(&self, plan: &[u8]) -> Result<SVec<u8>> {
        let guest = self.registered.guest(&self.session.config())?;
        let read = on_stack(|| self.registered.read(plan, &guest.context, self.logical_codec.as_ref()))?;
        let ReadPlan { around, plan, shares_ctes } = read;
        let schema = Arc::clone(plan.schema());
        let state = Arc::new(guest.begun(shares_ctes));
        let around = self.registered.formatted(around, &state).await?;
        let plan = optimized(&state, plan).await?;
        let mut refused = None;
        if !is_computed_here(&plan)? {
            match self.in_host(&plan, &around, &state).await {
                Ok(planned) => return Ok(planned),
                // A planner of another library has its reasons. Nothing runs past it.
                Err(error) if self.registered.has_other_planner() => return Err(error),
                // What datafusion-proto cannot hand on, such as deep expressions, runs here.
                Err(error) => refused = Some(error),
            }
        }
        let host = Arc::new(HostContext(self.session.task_context()));
        let lender = self.lender(&state, &host).await;
        let state = lending(state.as_ref().clone(), host, lender)?;
        let planned = on_stack_while_polled(&plan, self.here(&plan, &around, &state, &schema)).await?;
        planned.map_err(|error| refused.unwrap_or(error))
    }

    /// The plan of a statement that the host executes.
    async fn in_host(&self, plan: &LogicalPlan, around: &Around, state: &SessionState) -> Result<SVec<u8>> {
        let LogicalPlan::Explain(explain) = plan else {
            return self.planned_by_host(plan, around, Back::Number).await;
        };
        if !explain.logical_optimization_succeeded {
            return internal_err!("there is no plan to be shown");
        }
        let of_host = self.read_from_host(&explain.plan, state).await?;
        self.written(explained(explain, state, of_host).await?)
    }

    /// The plan of a statement that this library executes. What is written, and where, is the host's.
    async fn here(
        &self,
        plan: &LogicalPlan,
        around: &Around,
        state: &SessionState,
        schema: &DFSchema,
    ) -> Result<SVec<u8>> {
        match (plan, around) {
            (LogicalPlan::Dml(statement), _) => {
                let rows = local::planned(&statement.input, state, None).await?;
                let input = Arc::new(local::table(rows, true)?);
                let statement = LogicalPlan::Dml(DmlStatement { input, ..statement.clone() });
                self.planned_by_host(&statement, around, Back::Number).await
            }
            (plan, Around(Some(_))) => {
                let rows = local::table(local::planned(plan, state, None).await?, true)?;
                self.planned_by_host(&rows, around, Back::Number).await
            }
            (plan, Around(None)) => self.written(local::planned(plan, state, Some(schema)).await?),
        }
    }

    /// What lends this library memory of the session. A planner of another library that the session had before is not asked for it: then
    /// there is no limit.
    async fn lender(&self, state: &SessionState, host: &Arc<HostContext>) -> Option<Lender> {
        if self.registered.has_other_planner() {
            return None;
        }
        let planned = self.registered.asking().get_or_try_init(|| async {
            let planned = self.handed_on(&asking()?, &Around(None), Back::Number).await?;
            physical_plan_from_bytes_with_extension_codec(&planned, &state.task_ctx(), self.physical_codec.as_ref())
        });
        Lender::new(planned.await.ok()?, Arc::clone(host)).ok()?
    }

    /// The number of a plan of this library.
    fn written(&self, plan: Arc<dyn ExecutionPlan>) -> Result<SVec<u8>> {
        let captured = Arc::new(Captured(plan));
        let bytes = physical_plan_to_bytes_with_extension_codec(captured, self.physical_codec.as_ref())?;
        Ok(SVec::from(bytes.as_ref()))
    }

    /// The plan that the host would execute, as nodes of this library.
    async fn read_from_host(&self, plan: &LogicalPlan, state: &SessionState) -> Result<Arc<dyn ExecutionPlan>> {
        let bytes = self.planned_by_host(plan, &Around(None), Back::Bytes).await?;
        physical_plan_from_bytes_with_extension_codec(&bytes, &state.task_ctx(), self.physical_codec.as_ref())
    }

    /// The physical plan that the planner makes of a plan that the session had before, in the host. It comes back in this way, unless
    /// another library sees it: that is to see what the host has planned, as far as `datafusion-proto` can show it.
    async fn planned_by_host(&self, plan: &LogicalPlan, around: &Around, back: Back) -> Result<SVec<u8>> {
        if !self.registered.is_shown_to_others() {
            return self.handed_on(plan, around, back).await;
        }
        if back != Back::Bytes && !is_told_as_bytes(plan)? {
            return self.handed_on(plan, around, Back::Leaf).await;
        }
        match self.handed_on(plan, around, Back::Bytes).await {
            Ok(planned) => Ok(planned),
            Err(error) => self.handed_on(plan, around, Back::Leaf).await.map_err(|_| error),
        }
    }

    /// What the planner that the session had before makes of a plan.
    async fn handed_on(&self, plan: &LogicalPlan, around: &Around, back: Back) -> Result<SVec<u8>> {
        let written = on_stack(|| {
            let session = self.session.clone();
            let node = node(plan, move || Some(session.task_context()), self.logical_codec.as_ref())?;
            Ok(around.put(node).encode_to_vec())
        })?;
        let (bytes, session) = (SVec::from(written.as_slice()), self.session.clone());
        let planned = async move {
            // SAFETY: the function is that of the owner of the planner, and the session is borrowed for as long as this future runs.
            unsafe { (self.fallback.create_physical_plan)(&self.fallback, bytes, session) }.await
        };
        let planning = Planning::new(planned, self.registered.identity(), back);
        let number = planning.number();
        let planned = on_stack_while_polled(plan, planning).await?;
        forget(&written);
        match planned {
            FFI_Result::Ok(bytes) => Ok(bytes),
            FFI_Result::Err(error) => {
                forget_handed_on(number);
                Err(DataFusionError::Ffi(error.to_string()))
            }
        }
    }
}

/// Whether another library is told in bytes what the host makes of a plan, as it is without this one. A table in memory is not: its rows
/// would be copied, and `datafusion-proto` 55 reads a scan of none of its columns as one of all. It is changed when UPDATE and DELETE are
/// planned, so that what changes tables is planned once.
fn is_told_as_bytes(plan: &LogicalPlan) -> Result<bool> {
    let mut is_told = true;
    plan.apply_with_subqueries(|node| {
        is_told = match node {
            LogicalPlan::Dml(_) => false,
            LogicalPlan::TableScan(scan) => source_as_provider(&scan.source)?.is::<ListingTable>(),
            _ => true,
        };
        Ok(if is_told { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    })?;
    Ok(is_told)
}

/// A plan differentiated and optimized. It takes a thread of its own, so that the host can be interrupted meanwhile: what it has left
/// then ends at its next step.
async fn optimized(state: &Arc<SessionState>, plan: LogicalPlan) -> Result<LogicalPlan> {
    let state = Arc::clone(state);
    let interruption = Interruption::default();
    let _waiting = Waiting::new(&interruption);
    let optimized = move || interruption.watched(|| on_stack(|| state.optimize(&plan)));
    let optimizing = runtime().spawn_blocking(optimized);
    optimizing.await.map_err(|error| DataFusionError::External(Box::new(error)))?
}
