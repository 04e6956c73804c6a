//! Stages of groups.

use datafusion_common::{Column, DFSchema, Result, internal_err, plan_err};
use datafusion_expr::expr::AggregateFunction;
use datafusion_expr::{Aggregate, Expr, ExprSchemable, LogicalPlan, lit, when};
use datafusion_functions_aggregate::count::count_all;
use datafusion_functions_aggregate::first_last::first_value;
use std::sync::Arc;
use xql_autodiff::vocabulary::columns::is_volatile;
use xql_autodiff::vocabulary::messages::abbreviated;
use xql_autodiff::vocabulary::types::can_vary;

use super::Linearizer;
use super::grouping::apart;
use crate::forward::Draws;
use crate::reverse::nodes::Node;
use crate::reverse::partials::Partials;
use crate::reverse::region::{Region, StageId};
use crate::reverse::stage::Rows;
use crate::reverse::variable::named;
use crate::vocabulary::expressions::{failing, unaliased};
use crate::vocabulary::names::{Names, columns};

/// How many rows a group has.
#[derive(Debug, Clone, Copy)]
pub enum Members {
    /// One, or it is an error when the query runs.
    One,
    Any,
}

impl Linearizer<'_> {
    pub(super) fn aggregate(&mut self, node: Node, aggregate: &Aggregate) -> Result<Region> {
        let schema = aggregate.input.schema();
        if let Some(union) = apart(aggregate)? {
            let union = self.stages.nodes.keep(union);
            return self.region(&union);
        }
        if aggregate.group_expr.iter().chain(&aggregate.aggr_expr).any(is_volatile) {
            let once = self.stages.nodes.keep(drawn_below(aggregate, self.names)?);
            return self.region(&once);
        }
        let mut below = self.region(&aggregate.input)?;
        if aggregate.aggr_expr.iter().any(is_of_one_row) {
            // A row that is chosen by its place in an order is known again by its number.
            let width = below.columns.len();
            let stage = self.same(below)?;
            below = self.stages.reader(stage, width, self.names)?;
        }
        let keys = self.computed(&mut below, &aggregate.group_expr, schema)?;
        let keys = below.apart(keys, self.names)?;
        let mut calls = vec![];
        for expr in &aggregate.aggr_expr {
            let Expr::AggregateFunction(call) = expr.clone().unalias_nested().data else {
                return plan_err!("{} is not an aggregate", abbreviated(expr));
            };
            calls.push((self.over_columns(call, &mut below, schema)?, expr.clone()));
        }
        let stage = self.groups(below, keys, calls, Members::Any)?;
        let width = aggregate.schema.fields().len();
        self.stages.know(node, stage, width);
        self.stages.reader(stage, width, self.names)
    }

    /// A call that reads columns of a region only, and constants.
    pub fn over_columns(
        &mut self,
        mut call: AggregateFunction,
        below: &mut Region,
        schema: &DFSchema,
    ) -> Result<AggregateFunction> {
        let columns = self.computed(below, &call.params.args, schema)?;
        // A constant stays one: nth_value takes no column for its second argument.
        let is_nth = call.func.name() == "nth_value";
        for (position, (argument, column)) in call.params.args.iter_mut().zip(columns).enumerate() {
            let stays = matches!(argument, Expr::Literal(..)) || is_nth && position == 1;
            if !stays {
                *argument = Expr::Column(column);
            }
        }
        if let Some(filter) = &call.params.filter {
            let column = self.computed(below, std::slice::from_ref(filter), schema)?.pop();
            call.params.filter = column.map(|column| Box::new(Expr::Column(column)));
        }
        for sort in &mut call.params.order_by {
            if let Some(column) = self.computed(below, std::slice::from_ref(&sort.expr), schema)?.pop() {
                sort.expr = Expr::Column(column);
            }
        }
        Ok(call)
    }

    /// The one row of a region that has at most one, NULL if it has none. More are an error when the query runs.
    pub(super) fn first_of_one(&mut self, below: Region) -> Result<Region> {
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

    /// A stage with the groups of the rows of a region: first their keys, then the aggregates.
    pub fn groups(
        &mut self,
        below: Region,
        keys: Vec<Column>,
        calls: Vec<(AggregateFunction, Expr)>,
        members: Members,
    ) -> Result<StageId> {
        let mut aggregates = vec![];
        let mut varying = vec![];
        let mut partials = vec![];
        for (number, key) in keys.iter().enumerate() {
            if below.varying.contains(&key.name) {
                varying.push(number);
                partials.push(Partials::of_key(key));
            }
        }
        for (number, (call, original)) in calls.iter().enumerate() {
            let function = Expr::AggregateFunction(call.clone());
            let mut varies = false;
            for argument in &call.params.args {
                varies |= below.varies(argument)?;
            }
            if varies && can_vary(&function.get_type(below.plan.schema())?) {
                varying.push(keys.len() + number);
                partials.push(match (members, call.params.args.first()) {
                    (Members::One, Some(value)) => Partials::of_only(value),
                    (_, Some(value)) if is_of_one_row(original) => {
                        let row = below.leaves.first().and_then(|leaf| leaf.row.clone());
                        let Some(row) = row else { return internal_err!("the rows of a group have no numbers") };
                        Partials::of_chosen(call, value, row)?
                    }
                    _ => Partials::of(call, original, below.plan.schema())?,
                });
            }
            aggregates.push(function.alias(self.names.part(call.func.name())));
        }
        for partials in &mut partials {
            partials.add_statistics(&mut aggregates, keys.len(), self.names)?;
        }
        let group = keys.iter().cloned().map(Expr::Column).collect();
        let groups = Aggregate::try_new(Arc::new(below.plan.clone()), group, aggregates)?;
        let single = keys.is_empty();
        let exprs = columns(&groups.schema);
        let groups = LogicalPlan::Aggregate(groups);
        let groups = if single { groups } else { named(groups, &exprs, self.names)? };
        let rows = Rows::Groups { below, keys, aggregates: partials };
        Ok(self.stages.add("groups", groups, single, varying, rows, self.names))
    }
}

/// An aggregate over what its keys and functions draw, which its derivative must not draw again.
fn drawn_below(aggregate: &Aggregate, names: &mut Names) -> Result<LogicalPlan> {
    let mut draws = Draws::new(names);
    let keys = aggregate.group_expr.iter().cloned().map(|key| draws.ordering(key)).collect();
    let functions = aggregate.aggr_expr.iter().cloned().map(|function| draws.function(function));
    let functions = functions.collect::<Result<_>>()?;
    let input = draws.below(Arc::clone(&aggregate.input))?;
    Ok(LogicalPlan::Aggregate(Aggregate::try_new(input, keys, functions)?))
}

/// Whether an aggregate is the value of one row of a group, chosen by the order of the rows.
fn is_of_one_row(aggregate: &Expr) -> bool {
    match unaliased(aggregate) {
        Expr::AggregateFunction(call) => {
            matches!(call.func.name(), "first_value" | "last_value" | "nth_value")
        }
        _ => false,
    }
}
