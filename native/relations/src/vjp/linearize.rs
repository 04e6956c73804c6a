//! Linearizes plans: cuts them into segments, with residuals in between.
//!
//! In a *segment* every row comes from at most one row of each leaf, so a sweep can propagate cotangents row by row.
//! Filters, projections and joins extend the segment of their input. A node that combines rows, as groups and windows
//! do, or that might pick others the second time, as a limit does, ends it: the rows of the node become a *residual*.
//! That is a relation which is computed once, and which the nodes above and the sweep both read, like the stored
//! intermediate values of reverse mode in Griewank and Walther, "Evaluating Derivatives", chapter 4.

use datafusion_common::{Column, Result, internal_err, plan_err};
use datafusion_expr::expr::AggregateFunction;
use datafusion_expr::logical_plan::Subquery;
use datafusion_expr::{Expr, ExprSchemable, LogicalPlan, lit, when};
use datafusion_functions_aggregate::count::count_all;
use datafusion_functions_aggregate::first_last::first_value;
use std::sync::Arc;

use super::correlated::correlated;
use super::nodes::Node;
use super::residuals::{FramedSum, Groups, Members, ResidualKind, Residuals, Rows, Stored, needs_no_residual};
use super::row_ids::RowVariable;
use super::segment::{ResidualId, Segment, renamed};
use crate::shared_relation::SharedRelation;
use crate::vocabulary::expressions::failing;
use crate::vocabulary::names::Names;
use crate::vocabulary::nullable_wrapper::draws;
use crate::vocabulary::work_table::work_table;

/// Returns the segment of a node whose rows depend on those of a variable.
pub type LinearizeRule = fn(&mut SegmentBuilder, Node, &LogicalPlan) -> Result<Segment>;

/// Builds the segments of plans, and the residuals that they read.
pub struct SegmentBuilder<'a> {
    /// Names for columns.
    pub names: &'a mut Names,
    /// The variables by whose rows is differentiated.
    pub variables: &'a [RowVariable],
    /// The residuals so far.
    pub residuals: &'a mut Residuals,
    /// Plans sums of products as plans of their own, and computes sums over frames by functions of this project.
    pub contracts: bool,
    /// The number of readers of the relation whose segment is being built.
    pub readers: usize,
    /// The residuals around those of the iterations of recursive queries, the innermost last.
    around: Vec<Residuals>,
    rule: LinearizeRule,
}

/// The rows of a query, computed once and numbered.
pub struct Values {
    /// The columns of the query, in their order, and the number of the row behind them.
    pub plan: LogicalPlan,
    /// The columns of the query that vary, by their positions, each as a segment of that column and the number of the row.
    pub varying: Vec<(usize, Segment)>,
}

/// A residual around iterations.
struct OuterResidual {
    /// The node that it is, around.
    node: Node,
    residual: ResidualId,
    /// How many columns the node has.
    width: usize,
    /// Whether it has exactly one row.
    single: bool,
}

fn reads_work_table(node: &LogicalPlan) -> bool {
    matches!(node, LogicalPlan::TableScan(scan) if work_table(scan).is_some())
}

/// Refuses a plan that all iterations read if it would give each of them other rows.
fn check_is_the_same(plan: &LogicalPlan) -> Result<()> {
    let node_draws = |node: &LogicalPlan| node.expressions().iter().any(draws);
    let is_drawn = SharedRelation::any_node_in(plan, &node_draws)?;
    if is_drawn {
        return plan_err!(
            "a recursive query that a gradient by row passes through draws random numbers for other rows than those of the last \
             iteration. Keep them in a table, with the number of the iteration"
        );
    }
    Ok(())
}

impl<'a> SegmentBuilder<'a> {
    /// Creates a builder that makes segments by a rule for each kind of node.
    pub fn new(
        names: &'a mut Names,
        variables: &'a [RowVariable],
        residuals: &'a mut Residuals,
        rule: LinearizeRule,
    ) -> Self {
        Self { names, variables, residuals, contracts: false, readers: 1, around: vec![], rule }
    }

    /// Returns the segment of a scalar subquery, which has one row. Returns `None` if the subquery does not read a
    /// variable.
    pub fn value(&mut self, subquery: &Subquery) -> Result<Option<Segment>> {
        let node = self.residuals.enter(&subquery.subquery, self.variables)?;
        node.reads.then(|| self.subquery(subquery)).transpose()
    }

    /// Returns the numbered rows of a query. Returns `None` if the query does not read a variable.
    pub fn values(&mut self, query: &LogicalPlan) -> Result<Option<Values>> {
        if !self.residuals.enter(query, self.variables)?.reads {
            return Ok(None);
        }
        let segment = self.segment(query)?;
        let width = segment.columns.len();
        let residual = self.rows(segment)?;
        let positions = self.residuals.all().get(residual).map(|residual| residual.stored.varying.clone());
        let mut varying = vec![];
        for position in positions.unwrap_or_default() {
            let mut segment = self.residuals.numbered_reader(residual, width, self.names)?;
            segment.columns = vec![segment.columns[position].clone(), segment.columns[width].clone()];
            varying.push((position, segment));
        }
        let plan = self.residuals.numbered_rows(residual, width, self.names)?;
        Ok(Some(Values { plan, varying }))
    }

    /// Returns the segment of a scalar subquery, which has one row.
    pub fn subquery(&mut self, subquery: &Subquery) -> Result<Segment> {
        if !subquery.outer_ref_columns.is_empty() {
            return correlated(subquery);
        }
        let segment = self.segment(&subquery.subquery)?;
        if segment.single { Ok(segment) } else { self.first_of_one(segment) }
    }

    /// Returns the identity of a node, and whether it reads a variable.
    pub fn node(&mut self, plan: &LogicalPlan) -> Result<Node> {
        self.residuals.node(plan, self.variables)
    }

    /// Returns the segment of a plan.
    #[recursive::recursive]
    pub fn segment(&mut self, plan: &LogicalPlan) -> Result<Segment> {
        let node = self.node(plan)?;
        // The shared relations of an inner gradient are recomputed as residuals, with the columns that a sweep through
        // them reads.
        let is_recomputed = node.reads && self.variable(plan).is_none() && SharedRelation::scanned_by(plan).is_some();
        match self.residuals.residual_of(node).filter(|_| !is_recomputed) {
            Some((residual, width)) => self.residuals.reader(residual, width, self.names),
            None if !node.reads => match self.of_all_iterations(plan)? {
                Some(segment) => Ok(segment),
                None => self.constant(node, plan),
            },
            None => (self.rule)(self, node, plan),
        }
    }

    /// Returns the number of the variable whose rows a node scans, and the rows.
    pub fn variable(&self, plan: &LogicalPlan) -> Option<(usize, Stored)> {
        if let Some(begin) = &self.residuals.begin {
            return begin.is_scan(plan).then(|| (0, begin.before.clone()));
        }
        let number = self.variables.iter().position(|variable| variable.is_scan(plan))?;
        let variable = &self.variables[number];
        let relation = Arc::clone(variable.relation());
        Some((number, Stored { relation, single: false, varying: variable.columns.clone() }))
    }

    /// Builds the segment of a node. The relations below it have as many readers as the node: each reader of the node
    /// reads them.
    pub fn for_readers<T>(&mut self, node: Node, build: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let around = self.readers;
        self.readers = around.max(self.residuals.nodes.times(node));
        let built = build(self);
        self.readers = around;
        built
    }

    /// Returns whether a plan reads the rows of a variable. Within an iteration, the variables around it count as well.
    pub fn varies(&mut self, plan: &LogicalPlan) -> Result<bool> {
        let mut varies = self.node(plan)?.reads;
        for residuals in &mut self.around {
            varies |= residuals.node(plan, self.variables)?.reads;
        }
        Ok(varies)
    }

    /// Builds an iteration with residuals of its own. The residuals so far become the innermost ones around it.
    pub fn iteration<T>(
        &mut self,
        body: Residuals,
        build: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<(T, Residuals)> {
        let readers = std::mem::replace(&mut self.readers, 1);
        self.around.push(std::mem::replace(self.residuals, body));
        let built = build(self);
        let around = self.around.pop().unwrap_or_default();
        let body = std::mem::replace(self.residuals, around);
        self.readers = readers;
        // Nodes are identified by their addresses, so their plans must stay alive.
        self.residuals.nodes.keep_those_of(&body.nodes);
        Ok((built?, body))
    }

    /// Reads, within an iteration, a plan that varies and is the same in all iterations: returns a reader of the
    /// residual around the iterations that has its rows. Returns `None` outside of iterations, and if the plan does not
    /// vary.
    fn of_all_iterations(&mut self, plan: &LogicalPlan) -> Result<Option<Segment>> {
        let Some(around) = self.around.pop() else { return Ok(None) };
        let inside = std::mem::replace(self.residuals, around);
        let found = self.outer_residual(plan);
        let around = std::mem::replace(self.residuals, inside);
        let stored = match &found {
            Ok(Some(found)) => around.all().get(found.residual).map(|residual| residual.stored.clone()),
            _ => None,
        };
        self.around.push(around);
        let (Some(OuterResidual { node, residual, width, single }), Some(stored)) = (found?, stored) else {
            return Ok(None);
        };
        check_is_the_same(plan)?;
        let residuals = &mut *self.residuals;
        let Some(begin) = &mut residuals.begin else { return internal_err!("an iteration begins with nothing") };
        let id = match begin.known.get(&node.id) {
            Some(id) => *id,
            None => {
                begin.around.push(residual);
                let (number, id) = (begin.around.len(), residuals.all().len());
                if let Some(begin) = &mut residuals.begin {
                    begin.known.insert(node.id, id);
                }
                residuals.add(stored, ResidualKind::Variable(number))
            }
        };
        let segment = self.residuals.reader(id, width, self.names)?;
        Ok(Some(Segment { single, ..segment }))
    }

    /// Returns the residual around the iterations that has the rows of a plan, if the plan varies there.
    fn outer_residual(&mut self, plan: &LogicalPlan) -> Result<Option<OuterResidual>> {
        let node = self.node(plan)?;
        let segment = match node.reads {
            true => Some(self.segment(plan)?),
            false => self.of_all_iterations(plan)?,
        };
        let Some(segment) = segment else { return Ok(None) };
        let (width, single) = (segment.columns.len(), segment.single);
        if let Some((residual, width)) =
            self.residuals.residual_of(node).filter(|(residual, _)| self.residuals.is_numbered(*residual))
        {
            return Ok(Some(OuterResidual { node, residual, width, single }));
        }
        let residual = self.rows(segment)?;
        if self.residuals.residual_of(node).is_none() {
            self.residuals.know(node, residual, width);
        }
        Ok(Some(OuterResidual { node, residual, width, single }))
    }

    /// Returns the segment of a plan that does not vary. The plan is materialized if it is expensive or might give
    /// other rows the second time.
    fn constant(&mut self, node: Node, plan: &LogicalPlan) -> Result<Segment> {
        if !self.around.is_empty() {
            check_is_the_same(plan)?;
        }
        let single = matches!(plan, LogicalPlan::Aggregate(aggregate) if aggregate.group_expr.is_empty());
        let segment = renamed(plan.clone(), self.names)?;
        // A work table can be read only once, and each iteration would read it again.
        let is_read_out = !self.around.is_empty() && SharedRelation::any_node_in(plan, &reads_work_table)?;
        if !is_read_out && needs_no_residual(plan)? {
            return Ok(Segment { single, ..segment });
        }
        let relation = Arc::new(SharedRelation::new(self.names.part("constants"), segment.plan));
        let residual = self.residuals.add(Stored { relation, single, varying: vec![] }, ResidualKind::Constant);
        self.read_anew(node, residual, segment.columns.len())
    }

    /// Materializes the rows of a segment, for several readers or because they might be others the second time.
    pub fn stored(&mut self, node: Node, segment: Segment) -> Result<Segment> {
        let width = segment.columns.len();
        let residual = self.rows(segment)?;
        self.read_anew(node, residual, width)
    }

    /// Returns a residual with the rows of a segment. A segment that is a mere scan of a residual needs no new one.
    pub fn rows(&mut self, segment: Segment) -> Result<ResidualId> {
        match self.residuals.read_whole(&segment) {
            Some(known) => Ok(known),
            None => self.rows_with(segment, vec![]),
        }
    }

    /// Adds a residual with the rows of a segment. Some of its columns may be sums over frames of these rows.
    pub fn rows_with(&mut self, segment: Segment, sums: Vec<FramedSum>) -> Result<ResidualId> {
        let (stored, rows) = Rows::computed(segment, sums, self.names)?;
        Ok(self.residuals.add(stored, ResidualKind::Rows(rows)))
    }

    /// Adds a residual with groups of the rows of a segment. Its columns are the keys and then the aggregates, each
    /// with the call as the user wrote it.
    pub fn groups(
        &mut self,
        below: Segment,
        keys: Vec<Column>,
        calls: Vec<(AggregateFunction, Expr)>,
        members: Members,
    ) -> Result<ResidualId> {
        let (stored, groups) = Groups::computed(below, keys, calls, members, self.names)?;
        Ok(self.residuals.add(stored, ResidualKind::Groups(groups)))
    }

    /// Registers a residual as that of a node with `width` columns, and returns the first reader of it.
    pub fn read_anew(&mut self, node: Node, residual: ResidualId, width: usize) -> Result<Segment> {
        self.residuals.know(node, residual, width);
        self.residuals.reader(residual, width, self.names)
    }

    /// Returns the only row of a segment, NULL if it has none. Several rows are an error when the query runs.
    fn first_of_one(&mut self, below: Segment) -> Result<Segment> {
        let Some(value) = below.columns.first().cloned() else { return plan_err!("a subquery has no column") };
        let calls = [first_value(Expr::Column(value), vec![]), count_all()].into_iter().filter_map(|expr| {
            match expr.clone().unalias_nested().data {
                Expr::AggregateFunction(call) => Some((call, expr)),
                _ => None,
            }
        });
        let residual = self.groups(below, vec![], calls.collect(), Members::One)?;
        let mut segment = self.residuals.reader(residual, 2, self.names)?;
        let [value, count] = [0, 1].map(|index: usize| Expr::Column(segment.columns[index].clone()));
        let data_type = value.get_type(segment.plan.schema())?;
        let says = " rows of a scalar subquery, which may have one: aggregate them, or add a condition";
        let error = failing([lit("UnsupportedRelationError: "), count.clone(), lit(says)], data_type);
        let checked = when(count.gt(lit(1_i64)), error).otherwise(value)?;
        segment.columns = segment.add(vec![("value".to_owned(), checked)], self.names)?;
        Ok(segment)
    }
}
