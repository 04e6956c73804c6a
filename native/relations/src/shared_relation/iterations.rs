//! Logical nodes for the kept iterations of a recursive query (the tape), and for their adjoint.

use arrow::datatypes::{FieldRef, Schema, SchemaRef};
use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion_catalog::Session;
use datafusion_common::config::ConfigOptions;
use datafusion_common::{DFSchema, DFSchemaRef, Result, internal_err};
use datafusion_expr::utils::conjunction;
use datafusion_expr::{
    Expr, Extension, LogicalPlan, LogicalPlanBuilder, RecursiveQuery, UserDefinedLogicalNodeCore, lit,
};
use datafusion_physical_optimizer::PhysicalOptimizerRule;
use datafusion_physical_plan::ExecutionPlan;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::batch_table::Given;
use super::outer_session::without_dynamic_filters;
use crate::options::{checkpoints, fixed_points};
use crate::physical::{
    AdjointExec, BEFORE, FixedPoint, Keeps, Observed, PreserveOrder, Query, RecursiveTapeExec, WithoutMetrics,
};
use crate::vocabulary::observed::{observed_columns, observer};

/// The iterations of a recursive query, as the plan of a shared relation.
#[derive(Debug, Clone)]
pub struct IterationsNode {
    /// The name of the recursive query.
    name: String,
    kind: IterationMode,
    /// The input table of an iteration.
    given: Given,
    inputs: Vec<LogicalPlan>,
    schema: DFSchemaRef,
    /// The columns of the query under their own names.
    columns: SchemaRef,
    /// For an adjoint, the positions of the columns that have cotangents.
    varying: Vec<usize>,
}

/// The direction of the iterations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum IterationMode {
    /// Forward: the iterations are computed and kept.
    Tape,
    /// Backward: cotangents are propagated through them.
    Adjoint,
}

impl IterationsNode {
    /// Creates the rows of all iterations. `start` computes the first rows, and `step` the rows after the input rows.
    /// Both have one more column, which numbers them. An observer gets them under the name of `query`.
    pub fn tape(
        query: &RecursiveQuery,
        work: Given,
        [start, step]: [LogicalPlan; 2],
        schema: DFSchemaRef,
    ) -> LogicalPlan {
        let columns = Arc::clone(query.static_term.schema().inner());
        let name = query.name.clone();
        Self {
            name,
            kind: IterationMode::Tape,
            given: work,
            inputs: vec![start, step],
            schema,
            columns,
            varying: vec![],
        }
        .plan()
    }

    /// Returns what the iterations contribute to what they read: `tape` are their rows, `outside` the cotangents of these by their
    /// numbers, and `step` is what an iteration contributes for the cotangents that are given, as [`AdjointExec`] says. The recursive
    /// query has a name, columns, and the positions of those that the cotangents are of.
    pub fn adjoint(
        (name, columns, varying): (&str, SchemaRef, Vec<usize>),
        incoming: Given,
        [tape, outside, step]: [LogicalPlan; 3],
        schema: DFSchemaRef,
    ) -> LogicalPlan {
        let inputs = vec![tape, outside, step];
        Self { name: name.to_owned(), kind: IterationMode::Adjoint, given: incoming, inputs, schema, columns, varying }
            .plan()
    }

    fn plan(self) -> LogicalPlan {
        LogicalPlan::Extension(Extension { node: Arc::new(self) })
    }

    /// Returns the iterations that a node is.
    pub fn from_node(node: &LogicalPlan) -> Option<&Self> {
        let LogicalPlan::Extension(extension) = node else { return None };
        extension.node.as_any().downcast_ref()
    }

    /// Returns the name of the recursive query.
    pub fn query(&self) -> &str {
        &self.name
    }

    /// Returns the input table of an iteration.
    pub fn given(&self) -> &Given {
        &self.given
    }

    /// Returns the inputs: [`tape`](Self::tape) has two, and [`adjoint`](Self::adjoint) three.
    pub fn inputs(&self) -> &[LogicalPlan] {
        &self.inputs
    }

    /// Returns the columns that they have.
    pub fn fields(&self) -> Vec<FieldRef> {
        self.schema.fields().iter().cloned().collect()
    }

    /// Returns the node over other inputs, with these columns.
    pub fn with(&self, given: Given, inputs: Vec<LogicalPlan>, fields: Vec<FieldRef>) -> Result<LogicalPlan> {
        let schema = Arc::new(DFSchema::try_from(Schema::new(fields))?);
        Ok(Self { given, inputs, schema, ..self.clone() }.plan())
    }

    /// Returns the recursive term, if the iterations are run.
    pub fn step(&self) -> Option<&LogicalPlan> {
        self.inputs.get(1).filter(|_| self.kind == IterationMode::Tape)
    }

    /// Returns the rows of the iterations, if cotangents are carried back through them.
    pub fn tape_read(&self) -> Option<&LogicalPlan> {
        self.inputs.first().filter(|_| self.kind == IterationMode::Adjoint)
    }

    /// Returns the physical plan of iterations that are run.
    ///
    /// # Errors
    /// If an input cannot be planned.
    pub async fn run(&self, state: &dyn Session) -> Result<Arc<dyn ExecutionPlan>> {
        let [start, step] = self.inputs.as_slice() else { return self.lost() };
        let keeps = keeps(&self.name, state.config_options());
        let start = state.create_physical_plan(start).await?;
        let step =
            session_of_iterations(state, matches!(keeps, Keeps::Checkpoints(_)))?.create_physical_plan(step).await?;
        let observed =
            observer().map(|observer| Observed::new(observer, &self.columns, observed_columns(&self.columns)));
        let query = Query {
            name: self.name.clone(),
            work: self.given.id(),
            schema: Arc::clone(self.schema.inner()),
            keeps,
            wanted: Arc::default(),
            observed: observed.transpose()?,
        };
        Ok(Arc::new(RecursiveTapeExec::new(query, [start, step])))
    }

    /// Returns the physical plan of the adjoint of iterations, whose rows `tape` reads.
    ///
    /// # Errors
    /// If an input cannot be planned.
    pub async fn back(&self, tape: Arc<dyn ExecutionPlan>, state: &dyn Session) -> Result<Arc<dyn ExecutionPlan>> {
        let [_, outside, step] = self.inputs.as_slice() else { return self.lost() };
        let outside = state.create_physical_plan(outside).await?;
        let session = session_of_iterations(state, false)?;
        let fixed_point = match fixed_points(state.config_options()).tolerance(&self.name) {
            Some(tolerance) => {
                let to_rows_before =
                    self.schema.columns().into_iter().take(1).map(|to| Expr::Column(to).eq(lit(BEFORE)));
                let condition = conjunction(to_rows_before).unwrap_or_else(|| lit(true));
                let step = LogicalPlanBuilder::from(step.clone()).filter(condition)?.build()?;
                let step = session.create_physical_plan(&step).await?;
                let (columns, varying) = (Arc::clone(&self.columns), self.varying.clone());
                Some(FixedPoint { tolerance, columns, varying, step })
            }
            None => None,
        };
        let step = session.create_physical_plan(step).await?;
        let incoming = (self.given.id(), Arc::clone(self.given.schema()));
        let (name, schema) = (self.name.as_str(), Arc::clone(self.schema.inner()));
        Ok(Arc::new(AdjointExec::new(name, incoming, [tape, outside, step], schema).at(fixed_point)))
    }

    fn lost<T>(&self) -> Result<T> {
        internal_err!("the iterations of {} have lost an input", self.name)
    }

    fn key(&self) -> (&str, IterationMode, &[LogicalPlan]) {
        (&self.name, self.kind, &self.inputs)
    }
}

/// Returns the retention of the iterations of a recursive query.
pub fn keeps(query: &str, config: &ConfigOptions) -> Keeps {
    match (fixed_points(config).tolerance(query), checkpoints(config)) {
        (Some(_), _) => Keeps::Ends,
        (None, Some(most)) => Keeps::Checkpoints(most),
        (None, None) => Keeps::All,
    }
}

/// Returns a session for planning iterations, which are executed again and again. With `in_order`, an iteration that is
/// computed a second time gives the same rows in the same order.
fn session_of_iterations(state: &dyn Session, in_order: bool) -> Result<SessionState> {
    let Some(state) = state.as_any().downcast_ref::<SessionState>() else {
        return internal_err!("iterations are planned by another session than that of DataFusion");
    };
    // The catalogs are those of the session, and a new default one would take the place of theirs.
    let mut config = state.config().clone().with_create_default_catalog_and_schema(false);
    let mut builder = SessionStateBuilder::new_from_existing(state.clone());
    let is_known = |name: &str| state.physical_optimizers().iter().any(|rule| rule.name() == name);
    if !is_known(WithoutMetrics.name()) {
        builder = builder.with_physical_optimizer_rule(Arc::new(WithoutMetrics));
    }
    if in_order && !is_known(PreserveOrder.name()) {
        config = config.with_target_partitions(1);
        // One partition of a join does not wait for the others then, which are read after it.
        without_dynamic_filters(&mut config);
        builder = builder.with_physical_optimizer_rule(Arc::new(PreserveOrder));
    }
    Ok(builder.with_config(config).build())
}

impl PartialEq for IterationsNode {
    fn eq(&self, other: &Self) -> bool {
        self.given.id() == other.given.id() && self.key() == other.key()
    }
}

impl Eq for IterationsNode {}

impl PartialOrd for IterationsNode {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        let order = self.given.id().cmp(&other.given.id());
        Some(order).filter(|order| order.is_ne() || self == other)
    }
}

impl Hash for IterationsNode {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

impl UserDefinedLogicalNodeCore for IterationsNode {
    fn name(&self) -> &str {
        match self.kind {
            IterationMode::Tape => "Iterations",
            IterationMode::Adjoint => "Adjoint",
        }
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        self.inputs.iter().collect()
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        vec![]
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}: {}", UserDefinedLogicalNodeCore::name(self), self.name)
    }

    fn with_exprs_and_inputs(&self, _exprs: Vec<Expr>, inputs: Vec<LogicalPlan>) -> Result<Self> {
        Ok(Self { inputs, ..self.clone() })
    }
}
