//! Residuals: relations between the variable and the value that are computed once and read as often as needed.
//!
//! A kind of residual defines how its rows are computed (`computed`), and how their cotangents propagate to the rows
//! below (`pullback`). [`rows`] has the rows of a segment, one by one, and [`groups`] has groups of them. The
//! iterations of a recursive query have residuals of their own, which each iteration computes.

mod framed_sums;
mod groups;
mod materialized;
mod partials;
mod rows;

pub use framed_sums::FramedSum;
pub use groups::{Groups, Members};
pub use materialized::{PulledBack, Stored};
pub use rows::Rows;

use arrow::datatypes::SchemaRef;
use datafusion_common::{Result, internal_err};
use datafusion_expr::{Expr, LogicalPlan, Projection};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::cotangents::RowCotangents;
use super::nodes::{Node, Nodes};
use super::row_ids::RowVariable;
use super::segment::{Leaf, ResidualId, Segment};
use crate::shared_relation::SharedRelation;
use crate::vocabulary::names::Names;
use crate::vocabulary::nodes::{any_node, draws_itself, non_query_nodes};

/// A relation that is computed once.
pub struct Residual {
    /// Its rows.
    pub stored: Stored,
    /// Where they come from.
    pub kind: ResidualKind,
}

/// Where the rows of a residual come from.
pub enum ResidualKind {
    /// They are those of the variable of this number.
    Variable(usize),
    /// They do not vary.
    Constant,
    /// They are those of a segment.
    Rows(Rows),
    /// They are groups of the rows of a segment.
    Groups(Groups),
    /// They are those of all iterations of a recursive query.
    Iterations(Box<LinearizedIterations>),
}

/// The iterations of a recursive query.
pub struct LinearizedIterations {
    /// The name of the query.
    pub query: String,
    /// Its columns, under the names that it gives them.
    pub columns: SchemaRef,
    /// The residual with the first rows, among the residuals around.
    pub start: ResidualId,
    /// The positions of its columns that vary.
    pub first_varying: Vec<usize>,
    /// The residuals of an iteration.
    pub body: Residuals,
    /// The residual with the rows of an iteration, among these.
    pub rows: ResidualId,
}

/// The variables with which the residuals of an iteration begin. Variable 0 has the rows of the iteration before, and
/// the others are residuals around the iterations.
pub struct Begin {
    /// The rows of the iteration before.
    pub before: Stored,
    /// The residuals around that iterations read.
    pub around: Vec<ResidualId>,
    /// The residuals of nodes that are the same in all iterations, by the number that the node has around the
    /// iterations.
    pub known: HashMap<usize, ResidualId>,
}

impl Residual {
    /// Propagates the cotangents of the rows to the segment from which they are computed. Returns `None` for a variable
    /// or a constant, which have no segment, and for iterations, which have many.
    pub fn pullback(
        &self,
        total: RowCotangents,
        keeps_zeros: bool,
        names: &mut Names,
    ) -> Result<Option<PulledBack<'_>>> {
        match &self.kind {
            ResidualKind::Variable(_) | ResidualKind::Constant | ResidualKind::Iterations(_) => Ok(None),
            ResidualKind::Rows(rows) => rows.pullback(total, names).map(Some),
            ResidualKind::Groups(groups) => groups.pullback(&self.stored, total, keeps_zeros, names).map(Some),
        }
    }
}

/// The residuals by which values depend on variables.
#[derive(Default)]
pub struct Residuals {
    residuals: Vec<Residual>,
    /// The residuals of nodes by their numbers, with how many columns the nodes have.
    known: HashMap<usize, (ResidualId, usize)>,
    /// The numbers of those nodes that have exactly one row.
    single: HashSet<usize>,
    /// The shared relations of inner gradients that have been recomputed as residuals.
    recomputed: Vec<(Arc<SharedRelation>, ResidualId)>,
    /// The nodes of the plans that have been looked at.
    pub nodes: Nodes,
    /// The variables of an iteration, if these are the residuals of one.
    pub begin: Option<Begin>,
}

impl Residuals {
    /// Creates the residuals of an iteration after these rows.
    pub fn after(before: Stored) -> Self {
        let begin = Begin { before, around: vec![], known: HashMap::new() };
        Self { begin: Some(begin), ..Self::default() }
    }

    /// Returns the identity of a node, and whether it reads a variable: in an iteration, the rows of the iteration
    /// before.
    pub fn node(&mut self, plan: &LogicalPlan, variables: &[RowVariable]) -> Result<Node> {
        let Self { nodes, begin, .. } = self;
        nodes.identify(plan, &|node| is_variable(node, begin.as_ref(), variables))
    }

    /// Starts with another plan, and returns its identity and whether it reads a variable.
    pub fn enter(&mut self, plan: &LogicalPlan, variables: &[RowVariable]) -> Result<Node> {
        let Self { nodes, begin, .. } = self;
        nodes.enter(plan, &|node| is_variable(node, begin.as_ref(), variables))
    }

    /// Returns the residuals by their numbers.
    pub fn all(&self) -> &[Residual] {
        &self.residuals
    }

    /// Returns the residual of a node, if it has one, and how many columns the node has.
    pub fn residual_of(&self, node: Node) -> Option<(ResidualId, usize)> {
        self.known.get(&node.id).copied()
    }

    /// Records the residual of a node with `width` columns.
    pub fn know(&mut self, node: Node, id: ResidualId, width: usize) {
        self.known.insert(node.id, (id, width));
    }

    /// Records the residual that recomputes a shared relation, which a node scans.
    pub fn recompute(&mut self, node: Node, relation: Arc<SharedRelation>, (residual, width): (ResidualId, usize)) {
        self.know(node, residual, width);
        self.recomputed.push((relation, residual));
    }

    /// Returns whether shared relations of inner gradients have been recomputed.
    pub fn has_recomputed(&self) -> bool {
        !self.recomputed.is_empty()
    }

    /// Returns the residual that recomputes a shared relation.
    pub fn recomputed(&self, relation: &Arc<SharedRelation>) -> Option<ResidualId> {
        self.recomputed.iter().find(|(known, _)| Arc::ptr_eq(known, relation)).map(|(_, residual)| *residual)
    }

    /// Records that a node has exactly one row.
    pub fn know_single(&mut self, node: Node) {
        self.single.insert(node.id);
    }

    /// Returns whether a node is known to have exactly one row.
    pub fn is_single(&self, node: Node) -> bool {
        self.single.contains(&node.id)
    }

    /// Returns whether the rows of a residual have numbers.
    pub fn is_numbered(&self, id: ResidualId) -> bool {
        self.residuals.get(id).is_some_and(|residual| residual.stored.relation.is_numbered())
    }

    /// Returns the residual that a segment merely scans, if the segment has its first columns and all columns that
    /// vary.
    pub fn read_whole(&self, segment: &Segment) -> Option<ResidualId> {
        let [Leaf { residual: id, .. }] = segment.leaves.as_slice() else { return None };
        let Residual { stored, kind } = self.residuals.get(*id)?;
        let is_numbered = stored.relation.is_numbered()
            && match kind {
                ResidualKind::Rows(_) | ResidualKind::Groups(_) => true,
                ResidualKind::Variable(_) => self.begin.is_none(),
                ResidualKind::Constant | ResidualKind::Iterations(_) => false,
            };
        let is_whole = segment.steps.is_empty() && stored.relation.is_scan(&segment.plan);
        let has_varying = stored.varying.iter().all(|position| *position < segment.columns.len());
        let columns = segment.plan.schema().columns();
        (is_numbered && is_whole && has_varying && columns.starts_with(&segment.columns)).then_some(*id)
    }

    /// Returns the segment of [`numbered_reader`](Self::numbered_reader) as a plan, with a new name for the number.
    pub fn numbered_rows(&self, id: ResidualId, width: usize, names: &mut Names) -> Result<LogicalPlan> {
        let mut segment = self.numbered_reader(id, width, names)?;
        let number = segment.columns.pop().map(|number| Expr::Column(number).alias(names.part("row")));
        let exprs = segment.columns.into_iter().map(Expr::Column).chain(number).collect();
        Projection::try_new(exprs, Arc::new(segment.plan)).map(LogicalPlan::Projection)
    }

    /// Adds a residual.
    pub fn add(&mut self, stored: Stored, kind: ResidualKind) -> ResidualId {
        self.residuals.push(Residual { stored, kind });
        self.residuals.len() - 1
    }

    /// Returns a segment that reads all columns of a residual. The last one is the number of the row, if the rows have
    /// numbers.
    fn whole(&self, id: ResidualId, names: &mut Names) -> Result<Segment> {
        let Some(Residual { stored: residual, .. }) = self.residuals.get(id) else {
            return internal_err!("residual {id} is missing");
        };
        let mut segment = residual.scan(names)?;
        segment.single = residual.single;
        let row = segment.columns.last().filter(|_| residual.relation.is_numbered()).cloned();
        let read = |index: &usize| Some(segment.columns.get(*index)?.name.clone());
        let read: Vec<_> = residual.varying.iter().filter_map(read).collect();
        if !read.is_empty() {
            let own = segment.columns.clone();
            segment.varying.extend(read.iter().cloned());
            segment.leaves.push(Leaf { residual: id, row, present: None, columns: read, own, repeated: false });
        }
        Ok(segment)
    }

    /// Returns a segment that reads the residual of a node with `width` columns.
    pub fn reader(&self, id: ResidualId, width: usize, names: &mut Names) -> Result<Segment> {
        let mut segment = self.whole(id, names)?;
        segment.columns.truncate(width);
        Ok(segment)
    }

    /// Returns a segment that reads the residual of a node with `width` columns, and the number of the row as one more
    /// column. The residual may have others in between, for a sweep through the segment below.
    pub fn numbered_reader(&self, id: ResidualId, width: usize, names: &mut Names) -> Result<Segment> {
        let mut segment = self.whole(id, names)?;
        let row = segment.columns.last().cloned();
        segment.columns.truncate(width);
        segment.columns.extend(row);
        Ok(segment)
    }
}

fn is_variable(node: &LogicalPlan, begin: Option<&Begin>, variables: &[RowVariable]) -> bool {
    match begin {
        Some(begin) => begin.is_scan(node),
        None => variables.iter().any(|variable| variable.is_scan(node)),
    }
}

impl Begin {
    /// Returns whether a node scans the rows of the iteration before.
    pub fn is_scan(&self, node: &LogicalPlan) -> bool {
        self.before.relation.is_scan(node)
    }
}

/// Returns whether a plan needs no residual: it is cheap to compute twice, and has the same rows both times.
pub fn needs_no_residual(plan: &LogicalPlan) -> Result<bool> {
    let is_dear = any_node(plan, |node| {
        Ok(match node {
            LogicalPlan::TableScan(_)
            | LogicalPlan::Projection(_)
            | LogicalPlan::Filter(_)
            | LogicalPlan::SubqueryAlias(_)
            | LogicalPlan::Values(_)
            | LogicalPlan::EmptyRelation(_) => draws_itself(node),
            LogicalPlan::Window(_)
            | LogicalPlan::Aggregate(_)
            | LogicalPlan::Sort(_)
            | LogicalPlan::Join(_)
            | LogicalPlan::Repartition(_)
            | LogicalPlan::Union(_)
            | LogicalPlan::Subquery(_)
            | LogicalPlan::Limit(_)
            | LogicalPlan::Distinct(_)
            | LogicalPlan::Unnest(_)
            | LogicalPlan::RecursiveQuery(_)
            | LogicalPlan::Extension(_)
            | non_query_nodes!() => true,
        })
    })?;
    Ok(!is_dear)
}
