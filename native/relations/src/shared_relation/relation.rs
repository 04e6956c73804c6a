//! Shared relations: tables whose rows are computed by a plan, once per execution.

use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, SchemaBuilder, SchemaRef};
use async_trait::async_trait;
use chrono::{DateTime, Utc};
use datafusion_catalog::default_table_source::{provider_as_source, source_as_provider};
use datafusion_catalog::{Session, TableProvider};
use datafusion_common::Result;
use datafusion_common::metadata::ScalarAndMetadata;
use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_common::{Column, DFSchema, ParamValues, TableReference, internal_err, plan_datafusion_err};
use datafusion_expr::expr::Placeholder;
use datafusion_expr::utils::conjunction;
use datafusion_expr::{
    Expr, LogicalPlan, LogicalPlanBuilder, Projection, TableProviderFilterPushDown, TableScan, TableSource, TableType,
};
use datafusion_physical_plan::{ExecutionPlan, PhysicalExpr};
use futures::FutureExt;
use futures::future::BoxFuture;
use std::any::Any;
use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::ptr;
use std::sync::{Arc, Weak};
use tokio::sync::Mutex;
use xql_autodiff::vocabulary::columns::{has_subquery, is_volatile};
use xql_autodiff::vocabulary::refusals::Refused;
use xql_contraction::contract_sums;
use xql_guard::on_stack_of;

use super::iterations::{IterationsNode, keeps};
use super::outer_session::OuterSession;
use super::shared_draws::SharedDraws;
use crate::options::contractions;
use crate::physical::{
    Keeps, RecursiveTapeExec, RetentionPolicy, Shared, SharedScanExec, UniqueRowsExec, is_given, locked,
    share_projections,
};
use crate::version::table_scan;
use crate::vocabulary::expressions::unaliased;
use crate::vocabulary::nodes::{any_node, draws_itself};
use crate::vocabulary::nullable_wrapper::{nullable, unwrap_nullable};
use crate::vocabulary::work_table::{is_work_table, source_column};

/// A relation that is computed once and read by several places of a plan.
#[derive(Debug)]
pub struct SharedRelation {
    name: TableReference,
    plan: LogicalPlan,
    schema: SchemaRef,
    kind: RelationKind,
    /// The parameters of a prepared statement that the plan reads.
    parameters: Vec<(String, Option<FieldRef>)>,
    /// The columns that are read, all if they have not been looked for.
    columns_read: std::sync::Mutex<Option<BTreeSet<usize>>>,
    planned: Mutex<Option<Planned>>,
}

/// The kinds of shared relations, by what happens to the rows that the plan computes.
#[derive(Debug, Clone)]
enum RelationKind {
    /// The rows are kept for all readers.
    Kept,
    /// The rows of a CTE or view are kept for all readers. If these must get the same random numbers, `draws` counts
    /// the places that draw.
    Common { draws: Option<Arc<SharedDraws>> },
    /// The rows are kept, with one more column that numbers them.
    Numbered,
    /// The rows are passed on to each reader. The execution checks that each number in the column at this position
    /// occurs once.
    UniqueChecked(usize),
    /// The rows are passed on to their only reader.
    Streamed,
    /// The rows are kept for their only reader, whose plan is optimized separately.
    Isolated,
}

/// The physical plan of a relation. It lives as long as a plan that reads it.
#[derive(Debug)]
struct Planned {
    /// The start of the query for which it was planned. A later query plans it again, and reads its tables again.
    started: Option<DateTime<Utc>>,
    shared: Weak<Shared>,
    /// The columns that it has, of those of the relation.
    columns: Vec<usize>,
}

/// The physical plan of a relation for one of its readers.
struct PlannedForReader {
    shared: Arc<Shared>,
    /// Whether nobody has asked for it before.
    is_first: bool,
    /// The columns that it has, of those of the relation.
    columns: Vec<usize>,
}

impl SharedRelation {
    /// Creates the relation that `plan` computes, under a name for `EXPLAIN`.
    pub fn new(name: impl Into<String>, plan: LogicalPlan) -> Self {
        let schema = Arc::clone(plan.schema().inner());
        let parameters = parameters_of(&plan);
        let name = TableReference::bare(name.into());
        Self {
            name,
            plan,
            schema,
            kind: RelationKind::Kept,
            parameters,
            columns_read: std::sync::Mutex::default(),
            planned: Mutex::default(),
        }
    }

    /// Creates the relation of a CTE or view that several places read, by its name. `draws_once` says whether it draws random numbers which
    /// all of these have to have.
    pub fn common(name: TableReference, plan: LogicalPlan, draws_once: bool) -> Self {
        Self { name, kind: RelationKind::Common { draws: draws_once.then(Arc::default) }, ..Self::new("", plan) }
    }

    /// Creates a relation with one more column, `row`, that numbers the rows in no particular order.
    pub fn numbered(name: impl Into<String>, plan: LogicalPlan, row: &str) -> Self {
        let relation = Self::new(name, plan);
        let mut schema = SchemaBuilder::from(relation.schema.as_ref());
        schema.push(Field::new(row, DataType::UInt64, false));
        Self { schema: Arc::new(schema.finish()), kind: RelationKind::Numbered, ..relation }
    }

    /// Creates a relation whose execution checks that each number in the column at this position occurs once. Its rows
    /// are not kept.
    pub fn unique_checked(name: impl Into<String>, plan: LogicalPlan, position: usize) -> Self {
        Self { kind: RelationKind::UniqueChecked(position), ..Self::new(name, plan) }
    }

    /// Creates a relation for one reader. It is planned separately, with the columns that are read, and its rows are
    /// not kept.
    pub fn streamed(name: impl Into<String>, plan: LogicalPlan) -> Self {
        Self { kind: RelationKind::Streamed, ..Self::new(name, plan) }
    }

    /// Creates a relation for one reader. It is planned separately, and its rows are kept.
    pub fn isolated(name: impl Into<String>, plan: LogicalPlan) -> Self {
        Self { kind: RelationKind::Isolated, ..Self::new(name, plan) }
    }

    /// Returns its name in `EXPLAIN`.
    pub fn name(&self) -> &str {
        self.name.table()
    }

    /// Returns whether it is the relation of a CTE or view.
    pub fn is_common(&self) -> bool {
        matches!(self.kind, RelationKind::Common { .. })
    }

    /// Returns the draws that its readers have to have alike. They are those of all relations that it has been rewritten to.
    pub fn shared_draws(&self) -> Option<&Arc<SharedDraws>> {
        match &self.kind {
            RelationKind::Common { draws } => draws.as_ref(),
            _ => None,
        }
    }

    /// Returns the same relation computed by another plan.
    pub fn with_plan(&self, plan: LogicalPlan) -> Self {
        match self.number() {
            Some(row) => Self::numbered(self.name(), plan, row),
            None => Self { name: self.name.clone(), kind: self.kind.clone(), ..Self::new("", plan) },
        }
    }

    /// Returns whether it has one reader, which gets the rows of the plan as they are.
    pub fn is_read_once(&self) -> bool {
        matches!(self.kind, RelationKind::UniqueChecked(_) | RelationKind::Streamed | RelationKind::Isolated)
    }

    /// Returns whether it is computed for its only reader, planned apart with the columns that are read.
    pub fn is_streamed(&self) -> bool {
        matches!(self.kind, RelationKind::Streamed)
    }

    /// Returns whether the last column is not of the plan but numbers its rows.
    pub fn is_numbered(&self) -> bool {
        matches!(self.kind, RelationKind::Numbered)
    }

    /// Returns the column that has the numbers of the rows.
    pub fn number(&self) -> Option<&str> {
        self.columns().last().filter(|_| self.is_numbered())
    }

    /// Returns the shared relation that a node scans.
    pub fn scanned_by(node: &LogicalPlan) -> Option<Arc<Self>> {
        let LogicalPlan::TableScan(scan) = node else { return None };
        Self::scanned(scan)
    }

    /// Returns whether a node scans this relation.
    pub fn is_scan(&self, node: &LogicalPlan) -> bool {
        Self::scanned_by(node).is_some_and(|scanned| ptr::eq(scanned.as_ref(), self))
    }

    /// Returns whether a plan, a subquery or a shared relation in it reads this relation.
    pub fn is_read_by(&self, plan: &LogicalPlan) -> Result<bool> {
        Self::any_node_in(plan, &|node| self.is_scan(node))
    }

    /// Returns the shared relation that a node scans, and where its plan has column number `index` of the node; none if that is the
    /// number of a row.
    pub fn column_scanned_by(node: &LogicalPlan, index: usize) -> Option<(Arc<Self>, Option<usize>)> {
        let LogicalPlan::TableScan(scan) = node else { return None };
        let relation = Self::scanned(scan)?;
        let position = source_column(scan, index);
        let is_of_plan = position < relation.plan().schema().fields().len();
        Some((relation, is_of_plan.then_some(position)))
    }

    /// Returns whether a plan or a subquery in it scans a shared relation.
    pub fn is_scanned_in(plan: &LogicalPlan) -> Result<bool> {
        any_node(plan, |node| Ok(Self::scanned_by(node).is_some()))
    }

    /// Returns whether a plan, a subquery or a shared relation in it has such a node.
    pub fn any_node_in(plan: &LogicalPlan, is: &dyn Fn(&LogicalPlan) -> bool) -> Result<bool> {
        Self::any_node_beside(plan, is, &mut HashSet::new())
    }

    /// Searches a plan, except for the relations that have been searched already.
    #[recursive::recursive]
    fn any_node_beside(
        plan: &LogicalPlan,
        is: &dyn Fn(&LogicalPlan) -> bool,
        seen: &mut HashSet<*const Self>,
    ) -> Result<bool> {
        any_node(plan, |node| match Self::scanned_by(node).filter(|_| !is(node)) {
            Some(relation) if seen.insert(Arc::as_ptr(&relation)) => Self::any_node_beside(relation.plan(), is, seen),
            Some(_) => Ok(false),
            None => Ok(is(node)),
        })
    }

    /// Returns the shared relations that a plan scans, be it through others or in subqueries: each once, and before it
    /// those that it scans itself.
    ///
    /// # Errors
    /// If a plan cannot be traversed.
    pub fn scanned_in(plan: &LogicalPlan) -> Result<Vec<Arc<Self>>> {
        let mut relations = vec![];
        Self::add_scanned_in(plan, &mut HashSet::new(), &mut relations)?;
        Ok(relations)
    }

    #[recursive::recursive]
    fn add_scanned_in(
        plan: &LogicalPlan,
        seen: &mut HashSet<*const Self>,
        relations: &mut Vec<Arc<Self>>,
    ) -> Result<()> {
        plan.apply_with_subqueries(|node| {
            if let Some(relation) = Self::scanned_by(node)
                && seen.insert(Arc::as_ptr(&relation))
            {
                Self::add_scanned_in(relation.plan(), seen, relations)?;
                relations.push(relation);
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(())
    }

    /// Returns whether a plan, a subquery or a shared relation in it reads the rows of the last iteration of the recursive query of
    /// this name.
    ///
    /// # Errors
    /// If the plan cannot be gone through.
    pub fn reads_iteration(plan: &LogicalPlan, name: &str) -> Result<bool> {
        Self::any_node_in(plan, &|node| matches!(node, LogicalPlan::TableScan(scan) if is_work_table(scan, name)))
    }

    /// Returns the shared relation that a scan reads.
    pub fn scanned(scan: &TableScan) -> Option<Arc<Self>> {
        let provider: Arc<dyn Any + Send + Sync> = source_as_provider(&scan.source).ok()?;
        let reader: Arc<Reader> = provider.downcast().ok()?;
        Some(Arc::clone(&reader.relation))
    }

    /// Replaces scans of shared relations, and then the scans in their replacements. Subqueries stay as they are.
    ///
    /// # Errors
    /// If the plan cannot be gone through.
    pub fn replace_scans(
        plan: LogicalPlan,
        replacement: &dyn Fn(&TableScan, &Self) -> Result<Option<LogicalPlan>>,
    ) -> Result<Transformed<LogicalPlan>> {
        plan.transform_down(|node| {
            let LogicalPlan::TableScan(scan) = &node else { return Ok(Transformed::no(node)) };
            let replaced = match Self::scanned(scan) {
                Some(relation) => replacement(scan, &relation)?,
                None => None,
            };
            Ok(replaced.map_or_else(|| Transformed::no(node), Transformed::yes))
        })
    }

    /// Returns the plan that computes the rows.
    pub fn plan(&self) -> &LogicalPlan {
        &self.plan
    }

    /// Adds columns to those that are read: a plan of an earlier statement may be read by another one.
    pub fn add_columns_read(&self, columns: BTreeSet<usize>) {
        locked(&self.columns_read).get_or_insert_default().extend(columns);
    }

    /// Returns the columns that are computed. Iterations and the number of a row are, whether they are read or not.
    pub fn columns_computed(&self) -> Vec<usize> {
        let all = 0..self.schema.fields().len();
        match locked(&self.columns_read).as_ref().filter(|_| IterationsNode::from_node(&self.plan).is_none()) {
            Some(read) => {
                let number = self.is_numbered().then(|| all.end - 1);
                let checked = match self.kind {
                    RelationKind::UniqueChecked(column) => Some(column),
                    _ => None,
                };
                let is_computed = |column: &usize| read.contains(column) || [number, checked].contains(&Some(*column));
                let columns: Vec<_> = all.filter(is_computed).collect();
                // There are as many rows, though nothing of them is read.
                if columns.is_empty() { vec![0] } else { columns }
            }
            None => all.collect(),
        }
    }

    /// Returns the names of the columns.
    pub fn columns(&self) -> impl Iterator<Item = &str> {
        self.schema.fields().iter().map(|field| field.name().as_str())
    }

    /// Returns a scan of all columns. All scans read the same rows.
    pub fn scan(self: &Arc<Self>) -> Result<LogicalPlan> {
        self.scan_as(self.columns())
    }

    /// Returns a scan of all columns under other names.
    pub fn scan_as(self: &Arc<Self>, names: impl IntoIterator<Item = impl Into<String>>) -> Result<LogicalPlan> {
        self.scan_of(&self.read_as(names))
    }

    /// Returns a scan of it in the place of a scan of a relation with the same columns, under the names that they have there.
    pub fn scan_in_place_of(self: &Arc<Self>, scan: TableScan) -> TableScan {
        let names: Vec<_> = scan.source.schema().fields().iter().map(|field| field.name().clone()).collect();
        TableScan { source: self.read_as(names), ..scan }
    }

    /// Returns a scan of a table that [`read_as`](Self::read_as) has given.
    pub fn scan_of(&self, source: &Arc<dyn TableSource>) -> Result<LogicalPlan> {
        // DataFusion's builder would inline the plan of the relation.
        let columns = (0..self.schema.fields().len()).collect();
        let scan = table_scan(self.name.clone(), Arc::clone(source), columns, self.handed_on()?, None)?;
        Ok(LogicalPlan::TableScan(TableScan { projection: None, ..scan }))
    }

    /// Returns the plan that a scan reads, with the parameter values of the scan.
    ///
    /// # Errors
    /// If a value does not fit.
    pub fn plan_read_by(&self, scan: &TableScan) -> Result<LogicalPlan> {
        self.with_values(&scan.filters)
    }

    /// Returns filters that carry the values of parameters to the plan of the relation. DataFusion substitutes
    /// parameters in the plan that it sees, and all that it sees of a scan are its filters.
    fn handed_on(&self) -> Result<Vec<Expr>> {
        let parameters = self.parameters.iter();
        parameters
            .map(|(id, field)| nullable(Expr::Placeholder(Placeholder::new_with_field(id.clone(), field.clone()))))
            .collect()
    }

    /// Substitutes the values of parameters, which these filters carry, in the plan.
    fn with_values(&self, handed_on: &[Expr]) -> Result<LogicalPlan> {
        let mut values = HashMap::new();
        for ((id, _), expr) in self.parameters.iter().zip(handed_on) {
            if let Some(Expr::Literal(value, _)) = unwrap_nullable(unaliased(expr)).map(unaliased) {
                values.insert(id.trim_start_matches('$').to_owned(), ScalarAndMetadata::from(value.clone()));
            }
        }
        if values.is_empty() {
            return Ok(self.plan.clone());
        }
        self.plan.clone().replace_params_with_values(&ParamValues::Map(values))
    }

    /// Returns the table of all columns under other names.
    pub fn read_as(self: &Arc<Self>, names: impl IntoIterator<Item = impl Into<String>>) -> Arc<dyn TableSource> {
        let fields = self.schema.fields().iter().zip(names);
        let fields: Fields = fields.map(|(field, name)| field.as_ref().clone().with_name(name)).collect();
        let schema = Arc::new(Schema::new_with_metadata(fields, self.schema.metadata().clone()));
        provider_as_source(Arc::new(Reader { relation: Arc::clone(self), schema }))
    }

    /// Returns the physical plan for the session's statement.
    async fn planned(&self, state: &dyn Session, handed_on: &[Expr]) -> Result<PlannedForReader> {
        let started = state.execution_props().query_execution_start_time;
        // Scans are planned concurrently. The second one waits for the plan of the first.
        let mut planned = self.planned.lock().await;
        if let Some(known) = planned.as_ref().filter(|planned| planned.started == started)
            && let Some(shared) = known.shared.upgrade()
        {
            return Ok(PlannedForReader { shared, is_first: false, columns: known.columns.clone() });
        }
        let columns = self.columns_computed();
        // The passes of the rule are behind it. The session sees no call in it, and leaves it as it is.
        let plan = project(self.with_values(handed_on)?, &columns)?;
        let plan = match IterationsNode::from_node(&plan) {
            Some(iterations) => of_iterations(iterations, state).await?,
            None => alone(&plan, state).await?,
        };
        // A tape accounts for its rows and numbers them, and the iteration holds its input rows.
        let is_tape = plan.is::<RecursiveTapeExec>();
        let numbers = self.is_numbered() && !is_tape;
        if plan.schema().fields().len() + usize::from(numbers) != columns.len() {
            return internal_err!("the plan of {} has other columns than the relation", self.name);
        }
        let retention = RetentionPolicy { plan: is_tape, rows: is_tape || is_given(&plan), no_measures: false };
        let schema = Arc::new(self.schema.project(&columns)?);
        let shared = Shared::new(self.name().to_owned(), schema, numbers, plan);
        let shared = Arc::new(shared.with_retention(retention));
        *planned = Some(Planned { started, shared: Arc::downgrade(&shared), columns: columns.clone() });
        Ok(PlannedForReader { shared, is_first: true, columns })
    }

    /// Returns the physical plan of these columns, for a reader that has all columns under the names of a schema.
    async fn part_of(
        &self,
        state: &dyn Session,
        handed_on: &[Expr],
        columns: Vec<usize>,
        schema: &Schema,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let plan = self.with_values(handed_on)?;
        let mut read = columns.clone();
        // The column whose numbers are checked is read for that at least.
        let checked = match self.kind {
            RelationKind::UniqueChecked(row) => {
                Some(read.iter().position(|column| *column == row).unwrap_or_else(|| {
                    read.push(row);
                    columns.len()
                }))
            }
            _ => None,
        };
        let of_plan = |column: usize| Expr::Column(plan.schema().qualified_field(column).into());
        let read: Vec<_> = read.into_iter().map(|column| of_plan(column).alias(schema.field(column).name())).collect();
        let plan = LogicalPlanBuilder::from(plan).project(read)?.build()?;
        let part = OuterSession::left_to_plan_a_part(state);
        let plan = alone(&plan, part.as_ref().map_or(state, |part| part)).await?;
        let Some(number) = checked else { return Ok(plan) };
        let projection = (0..columns.len()).collect();
        Ok(Arc::new(UniqueRowsExec::new(plan, number, projection, Arc::new(schema.project(&columns)?))))
    }
}

/// Returns the physical plan of iterations, or of their adjoint.
fn of_iterations<'a>(
    iterations: &'a IterationsNode,
    state: &'a dyn Session,
) -> BoxFuture<'a, Result<Arc<dyn ExecutionPlan>>> {
    async move {
        let Some(tape) = iterations.tape_read() else {
            check_is_the_same_again(iterations, state)?;
            return iterations.run(state).await;
        };
        let mut scan = None;
        tape.apply(|node| {
            scan = match node {
                LogicalPlan::TableScan(scan) => SharedRelation::scanned(scan).zip(Some(scan.clone())),
                _ => None,
            };
            Ok(if scan.is_some() { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })?;
        let Some((relation, scan)) = scan else { return internal_err!("{} has no iterations", iterations.query()) };
        // It reads what the iterations have computed, but none of their rows.
        let PlannedForReader { shared, is_first, .. } = relation.planned(state, &scan.filters).await?;
        let tape = SharedScanExec::new(shared, &relation.schema, None, is_first)?;
        iterations.back(Arc::new(tape), state).await
    }
    .boxed()
}

/// Refuses iterations that are not repeatable if only some are kept and the others have to be computed again.
fn check_is_the_same_again(iterations: &IterationsNode, state: &dyn Session) -> Result<()> {
    let keeps = keeps(iterations.query(), state.config_options());
    let (Some(step), Keeps::Checkpoints(checkpoints)) = (iterations.step(), keeps) else {
        return Ok(());
    };
    let is_drawn = SharedRelation::any_node_in(step, &draws_itself)?;
    if !is_drawn {
        return Ok(());
    }
    Err(Refused::UnsupportedRelation.mark(plan_datafusion_err!(
        "the iterations of the recursive query {} draw random numbers, so that they cannot be computed again, which gradients by row do \
         if xql.checkpoints is {checkpoints}. Keep the numbers in a table, or SET xql.checkpoints = 0, which keeps all iterations",
        iterations.query()
    )))
}

/// Returns the physical plan of a plan, on a stack of sufficient size.
///
/// A relation is planned while its reader is being planned. A chain of relations that read one another is therefore
/// planned recursively, and each level gets enough stack.
async fn alone(plan: &LogicalPlan, state: &dyn Session) -> Result<Arc<dyn ExecutionPlan>> {
    let planned = on_stack_of(NEEDED, STACK, state.create_physical_plan(plan)).await?;
    share_projections(contract_sums(planned, contractions(state.config_options()))?)
}

/// The stack for planning one relation in bytes, several times what the host takes.
const NEEDED: usize = 512 << 10;
/// Bytes of a stack on which some relations are planned.
const STACK: usize = 8 << 20;

/// Returns a plan with these columns alone. Those behind the last one are numbers of rows, which no plan has.
fn project(plan: LogicalPlan, columns: &[usize]) -> Result<LogicalPlan> {
    let all = plan.schema().fields().len();
    let read: Vec<_> = columns.iter().copied().filter(|column| *column < all).collect();
    if read.len() == all {
        return Ok(plan);
    }
    let exprs = read.into_iter().map(|column| Expr::Column(plan.schema().qualified_field(column).into())).collect();
    Ok(LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(plan))?))
}

/// Returns what a scan of a relation reads, from a plan that has the columns of the relation.
pub fn read_from(scan: &TableScan, plan: LogicalPlan) -> Result<LogicalPlan> {
    let exprs = columns_read(scan, &plan);
    Ok(LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(plan))?))
}

/// Returns the columns that a scan reads, from rows that take its place.
pub fn columns_read(scan: &TableScan, plan: &LogicalPlan) -> Vec<Expr> {
    let exprs = scan.projected_schema.iter().enumerate().map(|(index, (table, field))| {
        let column = Column::from(plan.schema().qualified_field(source_column(scan, index)));
        Expr::Column(column).alias_qualified(table.cloned(), field.name())
    });
    exprs.collect()
}

fn parameters_of(plan: &LogicalPlan) -> Vec<(String, Option<FieldRef>)> {
    let mut parameters: Vec<_> = plan.get_parameter_fields().unwrap_or_default().into_iter().collect();
    parameters.sort_by(|(a, _), (b, _)| a.cmp(b));
    parameters
}

/// A shared relation as a table, whose columns have names for the reader.
#[derive(Debug)]
struct Reader {
    relation: Arc<SharedRelation>,
    schema: SchemaRef,
}

#[async_trait]
impl TableProvider for Reader {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Temporary
    }

    /// Returns the plan of a CTE or view, in which the calculus finds the origins of columns.
    fn get_logical_plan(&self) -> Option<Cow<'_, LogicalPlan>> {
        self.relation.is_common().then_some(Cow::Borrowed(&self.relation.plan))
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let read = projection.cloned().unwrap_or_else(|| (0..self.schema.fields().len()).collect());
        if matches!(self.relation.kind, RelationKind::UniqueChecked(_) | RelationKind::Streamed) {
            return self.relation.part_of(state, filters, read, &self.schema).await;
        }
        let whole = OuterSession::from_session(state);
        let state = whole.as_deref().map_or(state, |whole| whole.session());
        let PlannedForReader { shared, is_first, columns } = self.relation.planned(state, filters).await?;
        if let Some(tape) = shared.plan().downcast_ref::<RecursiveTapeExec>() {
            tape.query().wanted.read_by(self.condition(filters, state)?);
        }
        let schema = Arc::new(self.schema.project(&columns)?);
        let read = self.positions_in(&read, &columns)?;
        Ok(Arc::new(SharedScanExec::new(shared, &schema, Some(read), is_first)?))
    }

    /// Accepts filters inexactly: the rows of iterations that they exclude need not be kept, and the filters stay in
    /// the plan.
    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        let has_iterations = IterationsNode::from_node(&self.relation.plan).is_some();
        let is_taken = |filter: &Expr| has_iterations && !is_volatile(filter) && !has_subquery(filter);
        let answer = |filter: &&Expr| match is_taken(filter) {
            true => TableProviderFilterPushDown::Inexact,
            false => TableProviderFilterPushDown::Unsupported,
        };
        Ok(filters.iter().map(answer).collect())
    }
}

impl Reader {
    /// Returns the positions of columns of the relation among those that are computed.
    fn positions_in(&self, read: &[usize], computed: &[usize]) -> Result<Vec<usize>> {
        let position = |column: &usize| match computed.binary_search(column) {
            Ok(position) => Ok(position),
            Err(_) => {
                let name = self.schema.field(*column).name();
                internal_err!("{name} of {} is read, which is not computed", self.relation.name)
            }
        };
        read.iter().map(position).collect()
    }

    /// Returns what holds for the rows that are read, if it is known.
    fn condition(&self, filters: &[Expr], state: &dyn Session) -> Result<Option<Arc<dyn PhysicalExpr>>> {
        let filters = filters.iter().filter(|filter| unwrap_nullable(unaliased(filter)).is_none()).cloned();
        let Some(condition) = conjunction(filters) else { return Ok(None) };
        let schema = DFSchema::try_from(self.schema.as_ref().clone())?;
        state.create_physical_expr(condition, &schema).map(Some)
    }
}
