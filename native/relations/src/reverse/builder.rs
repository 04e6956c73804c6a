//! Making regions and stages of plans.

use datafusion_common::{Column, Result, plan_err};
use datafusion_expr::expr::AggregateFunction;
use datafusion_expr::logical_plan::Subquery;
use datafusion_expr::{Expr, ExprSchemable, LogicalPlan, lit, when};
use datafusion_functions_aggregate::count::count_all;
use datafusion_functions_aggregate::first_last::first_value;
use std::sync::Arc;

use super::lateral::correlated;
use super::nodes::Node;
use super::region::{Region, StageId, renamed};
use super::stages::{Groups, Kind, Members, Rows, Stages, Stored, needs_no_stage};
use super::variable::RowVariable;
use crate::shared::SharedRelation;
use crate::vocabulary::expressions::failing;
use crate::vocabulary::names::Names;

/// The region of a node whose rows depend on those of a variable.
pub type Rule = fn(&mut RegionBuilder, Node, &LogicalPlan) -> Result<Region>;

/// Makes regions of plans, and stages of what they read.
pub struct RegionBuilder<'a> {
    /// Names for columns.
    pub names: &'a mut Names,
    /// The variables by whose rows is differentiated.
    pub variables: &'a [RowVariable],
    /// The stages so far.
    pub stages: &'a mut Stages,
    /// How many readers the relation has of which a region is being made.
    pub readers: usize,
    rule: Rule,
}

impl<'a> RegionBuilder<'a> {
    /// A builder that makes regions by a rule for each kind of node.
    pub fn new(names: &'a mut Names, variables: &'a [RowVariable], stages: &'a mut Stages, rule: Rule) -> Self {
        Self { names, variables, stages, readers: 1, rule }
    }

    /// The region of the one row that a scalar subquery is, none if it does not read the rows of a variable.
    pub fn value(&mut self, subquery: &Subquery) -> Result<Option<Region>> {
        let node = self.stages.nodes.enter(&subquery.subquery, self.variables)?;
        node.reads.then(|| self.subquery(subquery)).transpose()
    }

    /// The region of the one row that a scalar subquery is.
    pub fn subquery(&mut self, subquery: &Subquery) -> Result<Region> {
        if !subquery.outer_ref_columns.is_empty() {
            return correlated(subquery);
        }
        let region = self.region(&subquery.subquery)?;
        if region.single { Ok(region) } else { self.first_of_one(region) }
    }

    /// What is known of a node of the value.
    pub fn node(&mut self, plan: &LogicalPlan) -> Result<Node> {
        self.stages.nodes.of(plan, self.variables)
    }

    /// The region of a plan.
    #[recursive::recursive]
    pub fn region(&mut self, plan: &LogicalPlan) -> Result<Region> {
        let node = self.node(plan)?;
        // What an inner gradient reads is computed anew with what a sweep through it reads.
        let is_opened = node.reads && self.variable(plan).is_none() && SharedRelation::scanned_by(plan).is_some();
        match self.stages.of(node).filter(|_| !is_opened) {
            Some((stage, width)) => self.stages.reader(stage, width, self.names),
            None if !node.reads => self.constant(node, plan),
            None => (self.rule)(self, node, plan),
        }
    }

    /// The number of the variable whose rows a node scans.
    pub fn variable(&self, plan: &LogicalPlan) -> Option<usize> {
        self.variables.iter().position(|variable| variable.is_scan(plan))
    }

    /// What does not vary. It is computed once if it is much to compute, or if it might be other rows the second time.
    fn constant(&mut self, node: Node, plan: &LogicalPlan) -> Result<Region> {
        let single = matches!(plan, LogicalPlan::Aggregate(aggregate) if aggregate.group_expr.is_empty());
        let region = renamed(plan.clone(), self.names)?;
        if needs_no_stage(plan)? {
            return Ok(Region { single, ..region });
        }
        let relation = Arc::new(SharedRelation::new(self.names.part("constants"), region.plan));
        let stage = self.stages.add(Stored { relation, single, varying: vec![] }, Kind::Constant);
        self.read_anew(node, stage, region.columns.len())
    }

    /// The rows of a region computed once, because they might be others the second time, or for several readers.
    pub fn stored(&mut self, node: Node, region: Region) -> Result<Region> {
        let width = region.columns.len();
        let stage = self.rows(region)?;
        self.read_anew(node, stage, width)
    }

    /// A stage with the rows of a region.
    pub fn rows(&mut self, region: Region) -> Result<StageId> {
        let (stored, rows) = Rows::computed(region, self.names)?;
        Ok(self.stages.add(stored, Kind::Rows(rows)))
    }

    /// A stage with the groups of the rows of a region: first their keys, then the aggregates, each with the call as the user wrote it.
    pub fn groups(
        &mut self,
        below: Region,
        keys: Vec<Column>,
        calls: Vec<(AggregateFunction, Expr)>,
        members: Members,
    ) -> Result<StageId> {
        let (stored, groups) = Groups::computed(below, keys, calls, members, self.names)?;
        Ok(self.stages.add(stored, Kind::Groups(groups)))
    }

    /// The first reader of a stage that a node with so many columns is.
    pub fn read_anew(&mut self, node: Node, stage: StageId, width: usize) -> Result<Region> {
        self.stages.know(node, stage, width);
        self.stages.reader(stage, width, self.names)
    }

    /// The one row of a region that has at most one, NULL if it has none. More are an error when the query runs.
    fn first_of_one(&mut self, below: Region) -> Result<Region> {
        let Some(value) = below.columns.first().cloned() else { return plan_err!("a subquery has no column") };
        let calls = [first_value(Expr::Column(value), vec![]), count_all()].into_iter().filter_map(|expr| {
            match expr.clone().unalias_nested().data {
                Expr::AggregateFunction(call) => Some((call, expr)),
                _ => None,
            }
        });
        let stage = self.groups(below, vec![], calls.collect(), Members::One)?;
        let mut region = self.stages.reader(stage, 2, self.names)?;
        let [value, count] = [0, 1].map(|index: usize| Expr::Column(region.columns[index].clone()));
        let data_type = value.get_type(region.plan.schema())?;
        let says = " rows of a scalar subquery, which may have one: aggregate them, or add a condition";
        let error = failing([lit("UnsupportedRelationError: "), count.clone(), lit(says)], data_type);
        let checked = when(count.gt(lit(1_i64)), error).otherwise(value)?;
        region.columns = region.add(vec![("value".to_owned(), checked)], self.names)?;
        Ok(region)
    }
}
