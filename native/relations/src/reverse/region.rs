//! Regions: plans whose rows have all that a sweep through them reads.

use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_common::{Column, DFSchema, JoinType, NullEquality, Result, plan_err};
use datafusion_expr::expr::AggregateFunction;
use datafusion_expr::logical_plan::{JoinConstraint, Sort, Subquery};
use datafusion_expr::{
    Aggregate, Distinct, Expr, ExprSchemable, Filter, Join, Limit, LogicalPlan, Projection, TableSource, lit,
};
use std::collections::BTreeSet;
use std::sync::Arc;
use xql_autodiff::vocabulary::columns::columns_read;
use xql_autodiff::vocabulary::messages::abbreviated;

use super::partials::Partials;
use super::variable::{RowVariable, numbered};
use crate::names::{Names, columns};
use crate::shared::{SharedRelation, scan};
use crate::tangent::can_vary;

/// A plan in which every row comes from one row of each leaf. Its columns have names that no other column of the statement has.
pub struct Region {
    pub plan: LogicalPlan,
    /// The columns of the node that the region stands for, in their order.
    pub columns: Vec<Column>,
    /// The columns that vary with the variable.
    pub varying: BTreeSet<String>,
    /// What computes those of them that are not of a leaf, inputs first.
    pub steps: Vec<Step>,
    pub leaves: Vec<Leaf>,
    /// Whether it has exactly one row.
    pub single: bool,
}

/// A column that varies, and what computes it.
pub struct Step {
    pub output: String,
    pub expr: Expr,
}

/// Where columns of a region come from.
pub struct Leaf {
    pub source: Source,
    /// The number of the leaf's row; none if it has one row only.
    pub row: Option<Column>,
    /// Whether a row of the leaf may be in several rows of the region.
    pub repeated: bool,
}

pub enum Source {
    /// The variables, as these columns.
    Variable(Vec<String>),
    Reduction(Box<Reduction>),
}

/// Groups of the rows of a region.
pub struct Reduction {
    pub below: Region,
    pub table: String,
    pub source: Arc<dyn TableSource>,
    /// The keys of the groups, as they are called below.
    pub keys: Vec<Column>,
    /// The columns that vary, and the aggregates that compute them.
    pub outputs: Vec<Output>,
}

/// An aggregate that varies.
pub struct Output {
    /// What it is called in the region above.
    pub above: String,
    /// The position of its value among the columns of the reduction.
    pub value: usize,
    pub partials: Partials,
}

impl Region {
    fn constant(plan: LogicalPlan, columns: Vec<Column>, single: bool) -> Self {
        Self { plan, columns, varying: BTreeSet::new(), steps: vec![], leaves: vec![], single }
    }

    /// The columns that vary of those that an expression reads.
    pub fn varying_in(&self, expr: &Expr) -> Vec<Column> {
        let mut read: Vec<_> =
            columns_read(expr).into_iter().filter(|column| self.varying.contains(&column.name)).collect();
        read.sort();
        read
    }

    fn leaves_repeated_beside(&mut self, other_is_single: bool) {
        for leaf in &mut self.leaves {
            leaf.repeated |= !other_is_single;
        }
    }
}

/// Makes regions of plans.
pub struct Regions<'a> {
    pub names: &'a mut Names,
    pub variable: &'a RowVariable,
}

impl Regions<'_> {
    /// The region of a plan.
    #[recursive::recursive]
    pub fn of(&mut self, plan: &LogicalPlan) -> Result<Region> {
        if !self.variable.is_read_by(plan)? {
            return self.leaf(plan, false);
        }
        match plan {
            scan if self.variable.is_scan(scan) => self.leaf(scan, true),
            LogicalPlan::SubqueryAlias(alias) => self.of(&alias.input),
            LogicalPlan::Subquery(Subquery { subquery, .. }) => self.of(subquery),
            LogicalPlan::Repartition(repartition) => self.of(&repartition.input),
            LogicalPlan::Projection(Projection { expr, input, .. }) => {
                let mut region = self.of(input)?;
                region.columns = self.computed(&mut region, expr, input.schema())?;
                Ok(region)
            }
            LogicalPlan::Filter(Filter { predicate, input, .. }) => {
                let mut region = self.of(input)?;
                let predicate = self.inside(&mut region, predicate, input.schema())?;
                region.plan = LogicalPlan::Filter(Filter::try_new(predicate.clone(), Arc::new(region.plan))?);
                region.single = false;
                if predicate.is_volatile() { self.settled(region) } else { Ok(region) }
            }
            LogicalPlan::Sort(Sort { expr, input, fetch }) => {
                let mut region = self.of(input)?;
                let mut order = vec![];
                for sort in expr {
                    order.push(sort.with_expr(self.inside(&mut region, &sort.expr, input.schema())?));
                }
                region.plan = LogicalPlan::Sort(Sort { expr: order, input: Arc::new(region.plan), fetch: *fetch });
                if fetch.is_some() { self.settled(region) } else { Ok(region) }
            }
            LogicalPlan::Limit(Limit { skip, fetch, input }) => {
                let mut region = self.of(input)?;
                let input = Arc::new(region.plan);
                region.plan = LogicalPlan::Limit(Limit { skip: skip.clone(), fetch: fetch.clone(), input });
                region.single = false;
                self.settled(region)
            }
            LogicalPlan::Join(join) => self.join(join),
            LogicalPlan::Aggregate(aggregate) => self.aggregate(aggregate),
            LogicalPlan::Distinct(Distinct::All(input)) => {
                self.aggregate(&Aggregate::try_new(Arc::clone(input), columns(input.schema()), vec![])?)
            }
            other => plan_err!(
                "derivatives by row are not followed through {}",
                other.display().to_string().lines().next().unwrap_or_default()
            ),
        }
    }

    /// The region of a plan that always has one row.
    pub fn only_row(&mut self, plan: &LogicalPlan) -> Result<Region> {
        let region = self.of(plan)?;
        if region.single { Ok(region) } else { self.first_of_one(region) }
    }

    /// A relation as a leaf, its columns under names of their own.
    fn leaf(&mut self, plan: &LogicalPlan, variable: bool) -> Result<Region> {
        let single = matches!(plan, LogicalPlan::Aggregate(aggregate) if aggregate.group_expr.is_empty());
        let mut exprs = vec![];
        let mut named = vec![];
        for column in columns(plan.schema()) {
            let name = self.names.part(&column.qualified_name().1);
            exprs.push(column.alias(name.clone()));
            named.push(Column::new_unqualified(name));
        }
        let projection = Projection::try_new(exprs, Arc::new(plan.clone()))?;
        let mut region = Region::constant(LogicalPlan::Projection(projection), named, single);
        if variable {
            let row = region.columns.pop();
            let named = self.variable.columns.iter().filter_map(|index| Some(region.columns.get(*index)?.name.clone()));
            let named: Vec<_> = named.collect();
            region.varying.extend(named.iter().cloned());
            region.leaves.push(Leaf { source: Source::Variable(named), row, repeated: false });
            return Ok(region);
        }
        if is_settled(plan)? { Ok(region) } else { self.settled(region) }
    }

    /// The region with its rows computed once, because computed again they might be others.
    fn settled(&mut self, region: Region) -> Result<Region> {
        let table = self.names.part("settled");
        let names: Vec<_> = region.plan.schema().fields().iter().map(|field| field.name().clone()).collect();
        let source = SharedRelation::new(table.clone(), region.plan).into_source();
        let scan = scan(table, &source)?;
        let exprs = columns(scan.schema()).into_iter().zip(names).map(|(column, name)| column.alias(name)).collect();
        let plan = LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(scan))?);
        Ok(Region { plan, ..region })
    }

    /// An expression over a node, over the region of that node. Subqueries in it that vary are joined to the region.
    fn inside(&mut self, region: &mut Region, expr: &Expr, schema: &DFSchema) -> Result<Expr> {
        let inside = expr.clone().transform_down(|part| match part {
            Expr::Column(column) => {
                let index = schema.maybe_index_of_column(&column);
                let known = index.and_then(|index| region.columns.get(index)).cloned();
                Ok(Transformed::yes(Expr::Column(known.unwrap_or(column))))
            }
            Expr::ScalarSubquery(subquery) if self.variable.is_read_by(&subquery.subquery)? => {
                if !subquery.outer_ref_columns.is_empty() {
                    return plan_err!(
                        "{} reads the variable and columns of the query around it. Write it as a join",
                        abbreviated(&Expr::ScalarSubquery(subquery))
                    );
                }
                let value = self.only_row(&subquery.subquery)?;
                let column = value.columns.first().cloned();
                let known = column.map(Expr::Column).unwrap_or_else(|| Expr::ScalarSubquery(subquery));
                self.beside(region, value)?;
                Ok(Transformed::new(known, true, TreeNodeRecursion::Jump))
            }
            part => Ok(Transformed::no(part)),
        })?;
        if inside.data.contains_outer() {
            return plan_err!(
                "{} reads a column of the query around it. Write the subquery as a join",
                abbreviated(expr)
            );
        }
        Ok(inside.data)
    }

    /// Puts a region of one row beside another.
    fn beside(&mut self, region: &mut Region, mut value: Region) -> Result<()> {
        value.leaves_repeated_beside(region.single);
        let plan = std::mem::take(&mut region.plan);
        region.plan = joined(plan, value.plan, vec![], None, JoinType::Inner, NullEquality::NullEqualsNothing)?;
        region.varying.append(&mut value.varying);
        region.steps.append(&mut value.steps);
        region.leaves.append(&mut value.leaves);
        Ok(())
    }

    /// Adds expressions over a node to the region of that node, and gives the columns that they are.
    fn computed(&mut self, region: &mut Region, exprs: &[Expr], schema: &DFSchema) -> Result<Vec<Column>> {
        let mut added = vec![];
        let mut found = vec![];
        for expr in exprs {
            let name = expr.qualified_name().1;
            let expr = self.inside(region, expr, schema)?.unalias_nested().data;
            if let Expr::Column(column) = expr {
                found.push(column);
                continue;
            }
            let name = self.names.part(&name);
            found.push(Column::new_unqualified(name.clone()));
            added.push((name, expr));
        }
        if added.is_empty() {
            return Ok(found);
        }
        let mut all = columns(region.plan.schema());
        all.extend(added.iter().map(|(name, expr)| expr.clone().alias(name.clone())));
        let plan = std::mem::take(&mut region.plan);
        let projection = Projection::try_new(all, Arc::new(plan))?;
        let mut volatile = false;
        for (output, expr) in added {
            volatile |= expr.is_volatile();
            let varies = can_vary(&expr.get_type(&projection.schema)?) && !region.varying_in(&expr).is_empty();
            if varies {
                region.varying.insert(output.clone());
                region.steps.push(Step { output, expr });
            }
        }
        region.plan = LogicalPlan::Projection(projection);
        if volatile {
            let settled = self.settled(std::mem::replace(region, Region::constant(LogicalPlan::default(), vec![], false)))?;
            *region = settled;
        }
        Ok(found)
    }

    fn join(&mut self, join: &Join) -> Result<Region> {
        let [mut left, mut right] = [self.of(&join.left)?, self.of(&join.right)?];
        let mut on = vec![];
        for (a, b) in &join.on {
            on.push((self.inside(&mut left, a, join.left.schema())?, self.inside(&mut right, b, join.right.schema())?));
        }
        let filter = match &join.filter {
            None => None,
            Some(filter) => {
                let both = join.left.schema().join(join.right.schema())?;
                let columns = left.columns.iter().chain(&right.columns).cloned().collect();
                let mut region = Region::constant(LogicalPlan::default(), columns, false);
                let filter = self.inside(&mut region, filter, &both)?;
                if !region.leaves.is_empty() {
                    return plan_err!("the condition of a join has a subquery that reads the variable. Put it in WHERE");
                }
                Some(filter)
            }
        };
        let volatile = filter.iter().chain(on.iter().flat_map(|(a, b)| [a, b])).any(Expr::is_volatile);
        let plan = LogicalPlan::Join(Join::try_new(
            Arc::new(left.plan.clone()),
            Arc::new(right.plan.clone()),
            on,
            filter,
            join.join_type,
            JoinConstraint::On,
            join.null_equality,
            join.null_aware,
        )?);
        let single = left.single && right.single && join.filter.is_none() && join.on.is_empty();
        let mut region = match join.join_type {
            JoinType::Inner | JoinType::Left | JoinType::Right | JoinType::Full => {
                left.leaves_repeated_beside(right.single);
                right.leaves_repeated_beside(left.single);
                left.columns.append(&mut right.columns);
                left.varying.append(&mut right.varying);
                left.steps.append(&mut right.steps);
                left.leaves.append(&mut right.leaves);
                left
            }
            JoinType::LeftSemi | JoinType::LeftAnti => left,
            JoinType::RightSemi | JoinType::RightAnti => right,
            other => return plan_err!("derivatives by row are not followed through a join of type {other}"),
        };
        region.plan = plan;
        region.single = single && matches!(join.join_type, JoinType::Inner);
        if volatile { self.settled(region) } else { Ok(region) }
    }

    fn aggregate(&mut self, aggregate: &Aggregate) -> Result<Region> {
        let schema = aggregate.input.schema();
        if aggregate.group_expr.iter().any(|key| matches!(key, Expr::GroupingSet(_))) {
            return plan_err!("derivatives by row are not followed through grouping sets. Write them as a UNION ALL");
        }
        let mut below = self.of(&aggregate.input)?;
        let keys = self.computed(&mut below, &aggregate.group_expr, schema)?;
        if let Some(key) = keys.iter().find(|key| below.varying.contains(&key.name)) {
            return plan_err!(
                "the rows are grouped by {}, which varies. Group by a column that does not",
                key.name.trim_start_matches('∂')
            );
        }
        let mut calls = vec![];
        for expr in &aggregate.aggr_expr {
            let Expr::AggregateFunction(mut call) = expr.clone().unalias_nested().data else {
                return plan_err!("{} is no aggregate", abbreviated(expr));
            };
            let arguments: Vec<_> = call.params.args.clone();
            let columns = self.computed(&mut below, &arguments, schema)?;
            // A constant stays one: some aggregates take no column for it.
            for (argument, column) in call.params.args.iter_mut().zip(columns) {
                if !matches!(argument, Expr::Literal(..)) {
                    *argument = Expr::Column(column);
                }
            }
            if let Some(filter) = &call.params.filter {
                let column = self.computed(&mut below, std::slice::from_ref(filter), schema)?.pop();
                call.params.filter = column.map(|column| Box::new(Expr::Column(column)));
            }
            for sort in &mut call.params.order_by {
                let column = self.computed(&mut below, std::slice::from_ref(&sort.expr), schema)?.pop();
                if let Some(column) = column {
                    sort.expr = Expr::Column(column);
                }
            }
            calls.push((call, expr.clone()));
        }
        self.reduction(below, keys, calls)
    }

    /// The one row of a region that has at most one, NULL if it has none. More are an error when the query runs.
    fn first_of_one(&mut self, below: Region) -> Result<Region> {
        let value = below.columns.first().cloned().map(Expr::Column).unwrap_or_else(|| lit(0.0));
        let mut region = self.reduction_of_one(below, value)?;
        let [value, count] = [region.columns[0].clone(), region.columns[1].clone()].map(Expr::Column);
        let data_type = value.get_type(region.plan.schema())?;
        let error = datafusion_expr::cast(lit("a scalar subquery gave more than one row"), data_type);
        let checked = datafusion_expr::when(count.gt(lit(1_i64)), error).otherwise(value)?;
        let schema = Arc::clone(region.plan.schema());
        let exprs = [checked.alias("value")];
        region.columns = self.computed_here(&mut region, &exprs, &schema)?;
        Ok(region)
    }

    fn computed_here(&mut self, region: &mut Region, exprs: &[Expr], schema: &DFSchema) -> Result<Vec<Column>> {
        let columns = std::mem::replace(&mut region.columns, schema.columns());
        let computed = self.computed(region, exprs, schema);
        region.columns = columns;
        computed
    }

    fn reduction_of_one(&mut self, below: Region, value: Expr) -> Result<Region> {
        let first = datafusion_functions_aggregate::first_last::first_value(value, vec![]);
        let count = datafusion_functions_aggregate::count::count_all();
        let calls = [first, count].into_iter().filter_map(|expr| match expr.clone().unalias_nested().data {
            Expr::AggregateFunction(call) => Some((call, expr)),
            _ => None,
        });
        let calls = calls.collect();
        self.reduction(below, vec![], calls)
    }

    /// The region of the groups of another, computed once.
    fn reduction(&mut self, below: Region, keys: Vec<Column>, calls: Vec<(AggregateFunction, Expr)>) -> Result<Region> {
        let mut aggregates = vec![];
        let mut outputs = vec![];
        for (number, (call, original)) in calls.iter().enumerate() {
            let varies = call.params.args.iter().any(|argument| !below.varying_in(argument).is_empty());
            let function = Expr::AggregateFunction(call.clone());
            if varies && can_vary(&function.get_type(below.plan.schema())?) {
                outputs.push((keys.len() + number, Partials::of(call, original, &below)?));
            }
            aggregates.push(function.alias(self.names.part(call.func.name())));
        }
        for (_, partials) in &mut outputs {
            partials.add_statistics(&mut aggregates, keys.len(), self.names);
        }
        let group = keys.iter().cloned().map(Expr::Column).collect();
        let groups = Aggregate::try_new(Arc::new(below.plan.clone()), group, aggregates)?;
        let single = keys.is_empty();
        let exprs = columns(&groups.schema);
        let groups = LogicalPlan::Aggregate(groups);
        let shared = if single { groups } else { numbered(groups, &exprs, self.names)? };
        let table = self.names.part("groups");
        let source = SharedRelation::new(table.clone(), shared).into_source();
        let mut region = self.renamed(scan(table.clone(), &source)?)?;
        region.single = single;
        let row = if single { None } else { region.columns.pop() };
        let outputs: Vec<_> = outputs
            .into_iter()
            .map(|(value, partials)| Output { above: region.columns[value].name.clone(), value, partials })
            .collect();
        region.varying.extend(outputs.iter().map(|output| output.above.clone()));
        // Those that only derivatives read are none of the node.
        region.columns.truncate(keys.len() + calls.len());
        if !outputs.is_empty() {
            let reduction = Box::new(Reduction { below, table, source, keys, outputs });
            region.leaves.push(Leaf { source: Source::Reduction(reduction), row, repeated: false });
        }
        Ok(region)
    }

    /// A relation with its columns under names of their own.
    pub fn renamed(&mut self, plan: LogicalPlan) -> Result<Region> {
        let mut exprs = vec![];
        let mut named = vec![];
        for column in columns(plan.schema()) {
            let name = self.names.part(&column.qualified_name().1);
            exprs.push(column.alias(name.clone()));
            named.push(Column::new_unqualified(name));
        }
        let projection = Projection::try_new(exprs, Arc::new(plan))?;
        Ok(Region::constant(LogicalPlan::Projection(projection), named, false))
    }
}

/// A join of two plans whose columns have different names.
pub fn joined(
    left: LogicalPlan,
    right: LogicalPlan,
    on: Vec<(Expr, Expr)>,
    filter: Option<Expr>,
    join_type: JoinType,
    nulls: NullEquality,
) -> Result<LogicalPlan> {
    let (left, right) = (Arc::new(left), Arc::new(right));
    Ok(LogicalPlan::Join(Join::try_new(left, right, on, filter, join_type, JoinConstraint::On, nulls, false)?))
}

/// Whether a plan that is computed twice has the same rows both times.
fn is_settled(plan: &LogicalPlan) -> Result<bool> {
    let mut settled = true;
    plan.apply_with_subqueries(|node| {
        settled &= match node {
            LogicalPlan::Limit(_) | LogicalPlan::Window(_) | LogicalPlan::Distinct(Distinct::On(_)) => false,
            LogicalPlan::Sort(sort) => sort.fetch.is_none(),
            _ => true,
        };
        node.apply_expressions(|expr| {
            settled &= !expr.is_volatile();
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(if settled { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    })?;
    Ok(settled)
}
