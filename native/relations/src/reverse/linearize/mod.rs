//! Regions and stages of plans.
//!
//! `joins` makes regions of what puts rows together, `groups` stages of what puts them into groups, `window` joins of window functions,
//! and `grouping` unions of grouping sets. `expressions` has the expressions of a node over its region, and `settled` what is computed
//! once.

mod expressions;
mod grouping;
mod groups;
mod joins;
mod settled;
mod window;

use datafusion_common::{Result, plan_err};
use datafusion_expr::logical_plan::{Sort, Subquery};
use datafusion_expr::{Aggregate, Distinct, Expr, Filter, Limit, LogicalPlan, Projection};
use std::sync::Arc;
use xql_autodiff::vocabulary::columns::is_volatile;
use xql_autodiff::vocabulary::messages::abbreviated;

use crate::reverse::nodes::Node;
use crate::reverse::region::Region;
use crate::reverse::stage::{Rows, Stages};
use crate::reverse::variable::RowVariable;
use crate::shared::SharedRelation;
use crate::vocabulary::names::{Names, columns};

/// Makes regions of plans, and stages of what they read.
pub struct Linearizer<'a> {
    pub names: &'a mut Names,
    pub variables: &'a [RowVariable],
    pub stages: &'a mut Stages,
    /// How many readers the relation has of which a region is being made.
    pub readers: usize,
}

impl Linearizer<'_> {
    /// The region of the one row that a scalar subquery is, none if it does not read the rows of a variable.
    pub fn value(&mut self, subquery: &Subquery) -> Result<Option<Region>> {
        let node = self.stages.nodes.enter(&subquery.subquery, self.variables)?;
        node.reads.then(|| self.subquery(subquery)).transpose()
    }

    fn subquery(&mut self, subquery: &Subquery) -> Result<Region> {
        if !subquery.outer_ref_columns.is_empty() {
            return plan_err!(
                "the correlated subquery {} reads the relation of the variable. Write it as a join",
                abbreviated(&Expr::ScalarSubquery(subquery.clone()))
            );
        }
        self.only_row(&subquery.subquery)
    }

    /// What is known of a node of the value.
    fn node(&mut self, plan: &LogicalPlan) -> Result<Node> {
        self.stages.nodes.of(plan, self.variables)
    }

    /// The region of a plan that always has one row.
    fn only_row(&mut self, plan: &LogicalPlan) -> Result<Region> {
        let region = self.region(plan)?;
        if region.single { Ok(region) } else { self.first_of_one(region) }
    }

    /// The region of a plan.
    #[recursive::recursive]
    pub fn region(&mut self, plan: &LogicalPlan) -> Result<Region> {
        let node = self.node(plan)?;
        let variable = self.variables.iter().position(|variable| variable.is_scan(plan));
        // What an inner gradient reads is computed anew with what a sweep through it reads.
        if let Some(shared) = SharedRelation::scanned_by(plan).filter(|_| node.reads && variable.is_none()) {
            return self.shared(node, &shared);
        }
        if let Some((stage, width)) = self.stages.of(node) {
            return self.stages.reader(stage, width, self.names);
        }
        if !node.reads {
            return self.constant(plan, node);
        }
        if let Some(number) = variable {
            let relation = Arc::clone(self.variables[number].relation());
            let columns = self.variables[number].columns.clone();
            let stage = self.stages.scanned(relation, false, columns, Rows::Variable(number));
            let width = plan.schema().fields().len();
            self.stages.know(node, stage, width);
            return self.stages.reader(stage, width, self.names);
        }
        match plan {
            LogicalPlan::SubqueryAlias(alias) => self.relation(node, &alias.input),
            LogicalPlan::Subquery(Subquery { subquery, .. }) => self.region(subquery),
            LogicalPlan::Repartition(repartition) => self.region(&repartition.input),
            LogicalPlan::Projection(Projection { expr, input, .. }) => {
                let mut region = self.region(input)?;
                region.columns = self.computed(&mut region, expr, input.schema())?;
                if expr.iter().any(is_volatile) { self.settled(node, region) } else { Ok(region) }
            }
            LogicalPlan::Filter(Filter { predicate, input, .. }) => {
                let mut region = self.region(input)?;
                let predicate = self.inside(&mut region, predicate, input.schema())?;
                region.plan = LogicalPlan::Filter(Filter::try_new(predicate.clone(), Arc::new(region.plan))?);
                region.single = false;
                if is_volatile(&predicate) { self.settled(node, region) } else { Ok(region) }
            }
            LogicalPlan::Sort(Sort { expr, input, fetch }) => {
                let mut region = self.region(input)?;
                let mut order = vec![];
                for sort in expr {
                    order.push(sort.with_expr(self.inside(&mut region, &sort.expr, input.schema())?));
                }
                region.plan = LogicalPlan::Sort(Sort { expr: order, input: Arc::new(region.plan), fetch: *fetch });
                region.single = region.single && fetch.is_none();
                if fetch.is_some() || expr.iter().any(|sort| is_volatile(&sort.expr)) {
                    self.settled(node, region)
                } else {
                    Ok(region)
                }
            }
            LogicalPlan::Limit(Limit { skip, fetch, input }) => {
                let mut region = self.region(input)?;
                let input = Arc::new(region.plan);
                region.plan = LogicalPlan::Limit(Limit { skip: skip.clone(), fetch: fetch.clone(), input });
                region.single = false;
                self.settled(node, region)
            }
            LogicalPlan::Join(join) => self.join(node, join),
            LogicalPlan::Union(union) => self.union(union),
            LogicalPlan::Window(window) => self.window(node, window),
            LogicalPlan::Aggregate(aggregate) => self.aggregate(node, aggregate),
            LogicalPlan::Distinct(Distinct::All(input)) => {
                let keys = columns(input.schema());
                self.aggregate(node, &Aggregate::try_new(Arc::clone(input), keys, vec![])?)
            }
            LogicalPlan::Distinct(Distinct::On(on)) => {
                let groups = self.stages.nodes.keep(grouping::first_rows(on)?);
                self.region(&groups)
            }
            LogicalPlan::Unnest(unnest) => self.unnest(unnest),
            LogicalPlan::RecursiveQuery(query) => plan_err!(
                "{} is a recursive query that reads the variable, and gradients by row cannot pass through its iterations. \
                 Differentiate by a column of one row, or by jvp along a direction",
                query.name
            ),
            other => plan_err!(
                "gradients by row cannot pass through {}",
                other.display().to_string().lines().next().unwrap_or_default()
            ),
        }
    }
}
