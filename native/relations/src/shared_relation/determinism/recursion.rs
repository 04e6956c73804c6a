//! Writes kept iterations and their adjoint as recursive queries, for engines without the nodes of this project.
//!
//! The tape is a recursive query without a node that keeps iterations, and the adjoint is another recursive query that
//! counts iterations down. Both know the iteration of a row by its number: iteration `i` has the numbers above
//! `i * STRIDE`.

use arrow::datatypes::SchemaRef;
use datafusion_catalog::cte_worktable::CteWorkTable;
use datafusion_catalog::default_table_source::provider_as_source;
use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_common::{Result, ScalarValue, internal_datafusion_err, internal_err};
use datafusion_expr::{Expr, JoinType, LogicalPlan, LogicalPlanBuilder, Projection, lit, union, when};
use datafusion_functions_aggregate::expr_fn::{max, sum};
use std::sync::Arc;

use crate::physical::{BEFORE, FIRST};
use crate::shared_relation::batch_table::Given;
use crate::shared_relation::iterations::IterationsNode;
use crate::shared_relation::relation::{SharedRelation, columns_read, read_from};
use crate::shared_relation::subplan_rewriter::each_rewritten;
use crate::version::recursive_query;
use crate::vocabulary::names::columns;

/// The row numbers of iteration `i` are between `i * STRIDE` and `(i + 1) * STRIDE`.
const STRIDE: i64 = 1 << 32;

/// Returns the plan of a relation of iterations as a recursive query, and `None` for any other relation. The recursive
/// term reads its work table several times.
///
/// Each row has its number, which tells its iteration. So readers find rows without an order.
///
/// # Errors
/// If the plan cannot be put together.
pub fn recursion(relation: &Arc<SharedRelation>) -> Result<Option<LogicalPlan>> {
    let Some(iterations) = IterationsNode::from_node(relation.plan()) else { return Ok(None) };
    let made = Recursion { name: relation.name(), schema: Arc::clone(relation.scan()?.schema().inner()) };
    match iterations.inputs() {
        [start, step] => made.tape(iterations.given(), start, step),
        [tape, outside, step] => made.sweep(iterations.given(), [tape, outside, step]),
        _ => internal_err!("the iterations of {} have lost an input", iterations.query()),
    }
    .map(Some)
}

/// A recursive query with the columns of a relation.
struct Recursion<'r> {
    name: &'r str,
    schema: SchemaRef,
}

impl Recursion<'_> {
    /// Returns the rows of all iterations.
    ///
    /// ```text
    /// RecursiveQuery: ∂r
    ///   Projection: s, val, ∂row                1, 2, ...
    ///   Projection: s, val, ∂row + ∂last + ...  STRIDE + 1, STRIDE + 2, ...
    ///     Cross Join
    ///       Projection: s, val, ∂row            the rows after those before
    ///       Projection: ∂last                   the multiple of STRIDE below the numbers of those before
    /// ```
    fn tape(&self, work: &Given, start: &LogicalPlan, step: &LogicalPlan) -> Result<LogicalPlan> {
        let before = self.part("before", self.work_table()?);
        let step = taking(step, (work, &before), None)?;
        let next = LogicalPlanBuilder::from(step).cross_join(last_iteration(&before)?)?.build()?;
        let mut exprs = columns(next.schema());
        if let (Some(last), Some(number)) = (exprs.pop(), exprs.pop()) {
            exprs.push(number + last + lit(STRIDE));
        }
        self.query(self.rows(start.clone(), columns(start.schema()))?, self.rows(next, exprs)?)
    }

    /// Returns the sums of the contributions of all iterations, from the last to the first. Apart from its
    /// contributions, each step leaves a marker in the work table: a NULL contribution to the row whose number is the
    /// multiple of [`STRIDE`] of the next iteration to visit.
    ///
    /// ```text
    /// Aggregate: ∂to, ∂row, sum(∂cotangent)
    ///   Filter: ∂to > BEFORE
    ///     RecursiveQuery: ∂adjoint
    ///       Union
    ///         Projection: BEFORE, the multiple before the last rows, NULL
    ///         Projection: FIRST, ∂row, ∂cotangent       those from outside of the first rows
    ///       Union
    ///         Projection: BEFORE, the multiple before, NULL
    ///         Projection: ∂to, ∂row, ∂cotangent         of an iteration, to its first rows as FIRST
    /// ```
    fn sweep(&self, given: &Given, [tape, outside, step]: [&LogicalPlan; 3]) -> Result<LogicalPlan> {
        let tape = scanned_in(tape)?;
        let Some(work) = IterationsNode::from_node(tape.plan()).map(IterationsNode::given) else {
            return internal_err!("an adjoint has no iterations");
        };
        let state = self.part("state", self.work_table()?);
        let outside = self.part("outside", outside.clone());
        let here = self.part("here", here(&state)?);
        let before = self.part("before", rows_before(&tape, &here)?);
        let incoming = self.part("incoming", incoming(given, &state, &outside, &here)?);
        let step = taking(step, (work, &before), Some((given, &incoming)))?;
        let first = union(self.marker(last_iteration(&tape)?, |last| last)?, self.to_first_rows(&outside)?)?;
        let marker = self.marker(here.scan()?, |here| here - lit(STRIDE))?;
        let next = union(marker, self.contributions(step, here.scan()?)?)?;
        let query = self.query(first, next)?;
        let all = columns(query.schema());
        let (keys, cotangents) = all.split_at(2);
        let is_kept = keys[0].clone().gt(lit(BEFORE));
        let sums: Vec<_> = cotangents.iter().cloned().map(sum).collect();
        LogicalPlanBuilder::from(query).filter(is_kept)?.aggregate(keys.to_vec(), sums)?.build()
    }

    /// Returns a marker: a NULL contribution to the row with this number.
    fn marker(&self, plan: LogicalPlan, number: fn(Expr) -> Expr) -> Result<LogicalPlan> {
        let number = columns(plan.schema()).into_iter().map(number);
        self.rows(plan, [lit(BEFORE)].into_iter().chain(number).collect())
    }

    /// Returns the cotangents that the first rows have from outside.
    fn to_first_rows(&self, outside: &Arc<SharedRelation>) -> Result<LogicalPlan> {
        let rows = outside.scan()?;
        let all = columns(rows.schema());
        let rows = LogicalPlanBuilder::from(rows).filter(all[0].clone().lt(lit(STRIDE)))?.build()?;
        self.rows(rows, [lit(FIRST)].into_iter().chain(all).collect())
    }

    /// Returns the contributions of an iteration. Those to rows below [`STRIDE`] are to the first rows. `here` is empty
    /// once the sweep has reached these.
    fn contributions(&self, step: LogicalPlan, here: LogicalPlan) -> Result<LogicalPlan> {
        let mut exprs = columns(step.schema());
        if let [to, row, ..] = exprs.as_mut_slice() {
            let is_first = to.clone().eq(lit(BEFORE)).and(row.clone().lt(lit(STRIDE)));
            *to = when(is_first, lit(FIRST)).otherwise(to.clone())?;
        }
        self.rows(LogicalPlanBuilder::from(step).cross_join(here)?.build()?, exprs)
    }

    /// Returns a relation that the query reads.
    fn part(&self, what: &str, plan: LogicalPlan) -> Arc<SharedRelation> {
        Arc::new(SharedRelation::new(format!("{} {what}", self.name), plan))
    }

    /// Returns the rows of the last iteration.
    fn work_table(&self) -> Result<LogicalPlan> {
        let source = provider_as_source(Arc::new(CteWorkTable::new(self.name, Arc::clone(&self.schema))));
        LogicalPlanBuilder::scan(self.name, source, None)?.build()
    }

    /// Rows with the columns of the query, NULL for those that are missing behind the others.
    fn rows(&self, plan: LogicalPlan, exprs: Vec<Expr>) -> Result<LogicalPlan> {
        let exprs = exprs.into_iter().chain(std::iter::repeat(lit(ScalarValue::Float64(None))));
        let exprs = exprs.zip(self.schema.fields()).map(|(expr, field)| expr.alias(field.name())).collect();
        Ok(LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(plan))?))
    }

    fn query(&self, first: LogicalPlan, next: LogicalPlan) -> Result<LogicalPlan> {
        let query = recursive_query(self.name.to_owned(), Arc::new(first), Arc::new(next), false)?;
        Ok(LogicalPlan::RecursiveQuery(query))
    }
}

/// Returns the multiple of [`STRIDE`] below the numbers of the last rows of a relation, as one row.
fn last_iteration(relation: &Arc<SharedRelation>) -> Result<LogicalPlan> {
    let scan = relation.scan()?;
    let last = columns(scan.schema()).pop().map(|number| max(number).alias("∂last"));
    let last = LogicalPlanBuilder::from(scan).aggregate(Vec::<Expr>::new(), last)?.build()?;
    let exprs = columns(last.schema()).into_iter().map(|last| multiple(last).alias("∂last"));
    LogicalPlanBuilder::from(last.clone()).project(exprs)?.build()
}

/// Returns the multiple of [`STRIDE`] of the iteration that the sweep has reached. There is none for the first rows.
fn here(state: &Arc<SharedRelation>) -> Result<LogicalPlan> {
    let scan = state.scan()?;
    let all = columns(scan.schema());
    let (to, row) = (all[0].clone(), all[1].clone());
    let is_multiple = (row.clone() % lit(STRIDE)).eq(lit(0_i64)).and(row.clone().gt(lit(0_i64)));
    LogicalPlanBuilder::from(scan).filter(to.eq(lit(BEFORE)).and(is_multiple))?.project([row.alias("∂here")])?.build()
}

/// Returns the rows of the iteration before that which the sweep has come to.
fn rows_before(tape: &Arc<SharedRelation>, here: &Arc<SharedRelation>) -> Result<LogicalPlan> {
    let rows = tape.scan()?;
    let all = columns(rows.schema());
    let Some(number) = all.last().cloned() else { return internal_err!("rows have no numbers") };
    of_iteration(rows, number, here, |here| here - lit(STRIDE))?.project(all)?.build()
}

/// Returns the cotangents of the rows of an iteration by their numbers in it: from that after it and from outside.
fn incoming(
    given: &Given,
    state: &Arc<SharedRelation>,
    outside: &Arc<SharedRelation>,
    here: &Arc<SharedRelation>,
) -> Result<LogicalPlan> {
    let carried = state.scan()?;
    let all = columns(carried.schema());
    let carried = LogicalPlanBuilder::from(carried).filter(all[0].clone().eq(lit(BEFORE)))?;
    let carried = carried.project(all[1..=given.schema().fields().len()].to_vec())?.build()?;
    let total = union(carried, outside.scan()?)?;
    let all = columns(total.schema());
    let rows = of_iteration(total, all[0].clone(), here, |here| here)?.build()?;
    let here = columns(rows.schema()).pop();
    let number = here.map(|here| (all[0].clone() - here).alias("∂row"));
    LogicalPlanBuilder::from(rows).aggregate(number, all[1..].iter().cloned().map(sum))?.build()
}

/// Returns the rows of one iteration, each with the multiple of [`STRIDE`] in `here`. `of` maps that to the multiple of
/// the iteration.
fn of_iteration(
    rows: LogicalPlan,
    number: Expr,
    here: &Arc<SharedRelation>,
    of: fn(Expr) -> Expr,
) -> Result<LogicalPlanBuilder> {
    let here = here.scan()?;
    // An equality lets an engine use a hash join.
    let is_of = columns(here.schema()).into_iter().map(|here| multiple(number.clone()).eq(of(here)));
    let is_of: Vec<_> = is_of.collect();
    LogicalPlanBuilder::from(rows).join_on(here, JoinType::Inner, is_of)
}

/// Returns the multiple of [`STRIDE`] below a number.
fn multiple(number: Expr) -> Expr {
    number.clone() - number % lit(STRIDE)
}

/// Replaces the input rows of an iteration in a plan: the rows before by `work`, with their numbers as one more column,
/// and other input rows by `others`.
fn taking(plan: &LogicalPlan, work: InPlace, others: Option<InPlace>) -> Result<LogicalPlan> {
    let taken = each_rewritten(plan.clone(), &mut |plan| {
        plan.transform_down_with_subqueries(|node| {
            let LogicalPlan::TableScan(scan) = &node else { return Ok(Transformed::no(node)) };
            let rows = match (SharedRelation::scanned(scan), others) {
                (Some(relation), _) => replace_numbering(relation.plan(), work)?,
                (None, Some((given, rows))) if is_scan(&node, given) => Some(rows.scan()?),
                (None, _) => None,
            };
            match rows {
                Some(rows) => Ok(Transformed::new(read_from(scan, rows)?, true, TreeNodeRecursion::Jump)),
                None => Ok(Transformed::no(node)),
            }
        })
    })?;
    Ok(taken.data)
}

/// The input of an iteration, and the relation that replaces it.
type InPlace<'p> = (&'p Given, &'p Arc<SharedRelation>);

/// Replaces a relation that numbers the input rows of an iteration by these rows with the numbers that they already
/// have. Returns `None` for another relation.
fn replace_numbering(plan: &LogicalPlan, work: InPlace) -> Result<Option<LogicalPlan>> {
    let (exprs, rows) = match plan {
        LogicalPlan::TableScan(scan) if is_scan(plan, work.0) => {
            let rows = work.1.scan()?;
            (columns_read(scan, &rows), rows)
        }
        LogicalPlan::Projection(node) => match replace_numbering(&node.input, work)? {
            Some(rows) => (node.expr.clone(), rows),
            None => return Ok(None),
        },
        _ => return Ok(None),
    };
    let number = columns(rows.schema()).pop();
    let exprs = exprs.into_iter().chain(number).collect();
    Ok(Some(LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(rows))?)))
}

fn is_scan(node: &LogicalPlan, given: &Given) -> bool {
    matches!(node, LogicalPlan::TableScan(scan) if Given::scanned(scan).is_some_and(|read| read.id() == given.id()))
}

/// Returns the relation that has the rows of all iterations.
fn scanned_in(plan: &LogicalPlan) -> Result<Arc<SharedRelation>> {
    let mut found = None;
    plan.apply(|node| {
        found = SharedRelation::scanned_by(node);
        Ok(if found.is_some() { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    found.ok_or_else(|| internal_datafusion_err!("an adjoint has no iterations"))
}
