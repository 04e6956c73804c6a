//! EXPLAIN of a plan that the host executes.
//!
//! No handle of a node carries the text by which the host shows it. So the plan that the host would execute is encoded by
//! `datafusion-proto` and decoded here. What cannot be encoded is shown as this library would plan it.

use datafusion::common::display::StringifiedPlan;
use datafusion::common::format::ExplainFormat;
use datafusion::common::{Result, internal_datafusion_err};
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::context::SessionState;
use datafusion::logical_expr::{Explain, LogicalPlan};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::explain::ExplainExec;
use std::sync::Arc;

use crate::local_exec::scan_plan;

/// Returns an EXPLAIN that shows lines in the place of a tree, if columns have been added: DataFusion breaks the lines of a tree at numbers
/// of bytes that it counts as characters, and panics within a name such as `∂sum`.
pub fn without_tree(plan: LogicalPlan) -> LogicalPlan {
    let has_added = |plan: &LogicalPlan| plan.display_indent().to_string().contains('∂');
    match plan {
        LogicalPlan::Explain(explain) if explain.explain_format == ExplainFormat::Tree && has_added(&explain.plan) => {
            LogicalPlan::Explain(Explain { explain_format: ExplainFormat::Indent, ..explain })
        }
        other => other,
    }
}

/// Builds the result of EXPLAIN for a logical plan and the host's physical plan.
///
/// # Errors
/// If one of them cannot be shown.
pub async fn show_explain(
    explain: &Explain,
    state: &SessionState,
    host_plan: Arc<dyn ExecutionPlan>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let options = &state.config_options().explain;
    let logical = match explain.explain_format {
        ExplainFormat::Indent => !options.physical_plan_only,
        ExplainFormat::Tree => false,
        ExplainFormat::PostgresJSON | ExplainFormat::Graphviz => true,
    };
    let physical = match explain.explain_format {
        ExplainFormat::Indent => !options.logical_plan_only,
        ExplainFormat::Tree => true,
        ExplainFormat::PostgresJSON | ExplainFormat::Graphviz => false,
    };
    let mut plans = vec![];
    if logical {
        plans.extend(plan_lines(explain.clone(), &restrict_explain(state, true)).await?);
    }
    if physical {
        let explain = Explain { plan: Arc::new(scan_plan(host_plan, false)?), ..explain.clone() };
        plans.extend(plan_lines(explain, &restrict_explain(state, false)).await?);
    }
    Ok(Arc::new(ExplainExec::new(Arc::clone(explain.schema.inner()), plans, explain.verbose)))
}

/// Restricts a session to one half of EXPLAIN. A physical plan is shown as it is, so no rule runs.
fn restrict_explain(state: &SessionState, is_logical: bool) -> SessionState {
    let mut config = state.config().clone();
    let options = &mut config.options_mut().explain;
    (options.logical_plan_only, options.physical_plan_only) = (is_logical, !is_logical);
    SessionStateBuilder::new_from_existing(state.clone())
        .with_config(config)
        .with_physical_optimizer_rules(vec![])
        .build()
}

/// Returns the rows that DataFusion's planner produces for EXPLAIN.
async fn plan_lines(explain: Explain, state: &SessionState) -> Result<Vec<StringifiedPlan>> {
    let planned = state.query_planner().create_physical_plan(&LogicalPlan::Explain(explain), state).await?;
    let lines = planned.downcast_ref::<ExplainExec>().map(|explained| explained.stringified_plans().to_vec());
    lines.ok_or_else(|| internal_datafusion_err!("EXPLAIN is planned as {}", planned.name()))
}
