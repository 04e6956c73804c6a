//! Groups and aggregates.

use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_common::{Column, Result, internal_err};
use datafusion_expr::utils::grouping_set_to_exprlist;
use datafusion_expr::{Aggregate, Expr, ExprSchemable, LogicalPlan, Projection};
use std::collections::BTreeSet;
use std::sync::Arc;
use xql_autodiff::vocabulary::columns::is_volatile;

use super::direction::Direction;
use super::equal_tangents::{EqualTangents, InRows};
use super::hoist_volatile::VolatileColumns;
use super::propagate::{NodeRequest, Propagation, WithTangents};
use super::window::functions::with_windows_over_columns;
use crate::aggregate_rules::{AggregateRows, arguments};
use crate::tangents::linearize::{LinearizedExpr, null_with_column, of_type, tangent_to_expr};
use crate::tangents::tangent::{Linearized, Tangent, Tangents};
use crate::vocabulary::expressions::unaliased;
use crate::vocabulary::names::{Names, columns};
use crate::vocabulary::nodes::computed;

/// Propagates tangents through an aggregation. The tangent of a function is computed by its formula. A key that varies,
/// and is not the variable itself, has a tangent if that is the same in all rows of its group.
///
/// ```text
/// Aggregate: groupBy=[[w]], aggr=[[avg(w * x) AS m]]
///   TableScan: t
/// ```
///
/// becomes
///
/// ```text
/// Projection: w, m, ∂avg AS ∂m/∂w
///   Aggregate: groupBy=[[w]], aggr=[[avg(w * x) AS m, avg(jvp(w * x, w, 1)) AS ∂avg]]
///     TableScan: t
/// ```
pub fn aggregate(
    propagation: &mut Propagation,
    aggregate: Aggregate,
    requests: &[NodeRequest],
) -> Result<WithTangents> {
    let aggregate = hoist_volatile(aggregate, propagation.names)?;
    let aggregate = computed_before(aggregate, requests, propagation.names)?;
    let known = computed(&aggregate)?;
    let to_input = propagation.directions.iter().zip(requests).map(|(direction, request)| {
        let read = request.output.columns.iter().filter_map(|index| known[*index]).flat_map(arguments);
        let needs = direction.needs(aggregate.input.schema(), request.inputs[0], read)?;
        Ok(request.of_input(0, needs).by_value())
    });
    let to_input = to_input.collect::<Result<_>>()?;
    let WithTangents { plan, tangents } = propagation.propagate(aggregate.input.as_ref().clone(), to_input)?;

    let (agreements, ranks, exprs) = (EqualTangents::default(), vec![], vec![]);
    let mut groups = Groups { aggregate: &aggregate, with_tangents: &plan, agreements, ranks, exprs };
    groups.agreements.aggregates.extend(aggregate.aggr_expr.iter().cloned());
    groups.exprs.extend(columns(&aggregate.schema));
    let mut all = vec![];
    for ((direction, request), below) in propagation.directions.iter().zip(requests).zip(&tangents) {
        all.push(groups.tangents(direction, &request.output.columns, below, propagation.names)?);
    }
    let Groups { agreements, ranks, mut exprs, .. } = groups;
    if !all.iter().flat_map(Tangents::iter).any(|(_, tangent)| matches!(tangent, Tangent::Column(_))) {
        return Ok(WithTangents { plan: LogicalPlan::Aggregate(aggregate), tangents: all });
    }
    exprs.extend(agreements.exprs);
    let plan = with_windows_over_columns(plan, ranks, propagation.names)?;
    let grouped = Aggregate::try_new(Arc::new(plan), aggregate.group_expr, agreements.aggregates)?;
    let plan = Projection::try_new(exprs, Arc::new(LogicalPlan::Aggregate(grouped)))?;
    Ok(WithTangents { plan: LogicalPlan::Projection(plan), tangents: all })
}

/// Groups that are getting tangents.
struct Groups<'g> {
    aggregate: &'g Aggregate,
    /// The input with the tangents of its columns.
    with_tangents: &'g LogicalPlan,
    /// The aggregates of the node, those that tangents are computed from, and the tangents of keys.
    agreements: EqualTangents,
    /// The window functions below the aggregates that these read.
    ranks: Vec<Expr>,
    /// The columns of the node and the tangents of aggregates.
    exprs: Vec<Expr>,
}

impl Groups<'_> {
    /// Returns the tangents in one direction of the wanted columns, over an input with these tangents.
    fn tangents(
        &mut self,
        direction: &Direction,
        wanted: &BTreeSet<usize>,
        below: &Tangents,
        names: &mut Names,
    ) -> Result<Tangents> {
        let Aggregate { input, group_expr, .. } = self.aggregate;
        let keys = grouping_set_to_exprlist(group_expr)?.len();
        let computed = computed(self.aggregate)?;
        let mut tangents = Tangents::default();
        for index in wanted {
            let Some(primal) = computed[*index] else { continue };
            if *index < keys {
                tangents.set(*index, self.of_key(*index, primal, direction, below, names)?);
                continue;
            }
            let mut rows = AggregateRows {
                columns: input.schema(),
                tangents: below,
                with_tangents: self.with_tangents.schema(),
                jvp: &direction.jvp,
                variable: &direction.variable,
                names,
                keys: group_expr,
                ranks: &mut self.ranks,
                computed: &mut self.agreements.aggregates,
            };
            let Some(mut guarded) = rows.guarded(primal)? else { continue };
            let field = self.aggregate.schema.field(*index);
            let data_type = direction.tangent_type(field.data_type());
            guarded.tangent = of_type(null_with_column(guarded.tangent, &self.aggregate.schema, *index)?, &data_type);
            let tangent = direction.add_guarded(guarded, (field.name(), data_type), &mut self.exprs, names)?;
            tangents.set(*index, tangent);
        }
        Ok(tangents)
    }

    /// Returns the tangent of a key.
    fn of_key(
        &mut self,
        index: usize,
        primal: &Expr,
        direction: &Direction,
        below: &Tangents,
        names: &mut Names,
    ) -> Result<Tangent> {
        let Aggregate { input, group_expr, schema, .. } = self.aggregate;
        let function = LinearizedExpr::try_new(primal.clone(), input.schema())?;
        let tangent = match function.linearize(input.schema(), below, &direction.jvp)? {
            Linearized::Known(constant @ (Tangent::Zero | Tangent::One)) => return Ok(constant),
            tangent => tangent,
        };
        let inactive = function.inactive(input.schema(), below, self.with_tangents.schema())?;
        let data_type = direction.tangent_type(schema.field(index).data_type());
        let tangent = tangent_to_expr(&tangent, primal, input.schema(), &data_type)?;
        let tangent = tangent.cast_to(&data_type, self.with_tangents.schema())?;
        let key = Expr::Column(Column::from(schema.qualified_field(index)));
        let rolled_up = matches!(group_expr.as_slice(), [Expr::GroupingSet(_)]).then_some(key);
        let in_rows = InRows { tangent, inactive, rolled_up, data_type, column: schema.field(index).name() };
        self.agreements.add(in_rows, direction, names)
    }
}

/// Moves the volatile parts of an aggregation's functions into a projection below.
fn hoist_volatile(aggregate: Aggregate, names: &mut Names) -> Result<Aggregate> {
    if !aggregate.aggr_expr.iter().any(is_volatile) {
        return Ok(aggregate);
    }
    let Aggregate { input, group_expr, aggr_expr, .. } = aggregate;
    let mut draws = VolatileColumns::new(names);
    let aggr_expr = aggr_expr.into_iter().map(|function| draws.function(function)).collect::<Result<_>>()?;
    Aggregate::try_new(draws.below(input)?, group_expr, aggr_expr)
}

/// The number of parts from which an argument is computed in a projection below.
const LARGE: usize = 16;

/// Moves arguments that are linearized in several directions into a projection below, which then has all of their
/// derivatives. The arguments of a function with a FILTER stay, since they may fail in the rows that it leaves out.
///
/// ```text
/// Aggregate: aggr=[[avg(exp(w * x) + b) AS m]]            Aggregate: aggr=[[avg(∂argument) AS m]]
///   TableScan: t                                            Projection: w, b, x, exp(w * x) + b AS ∂argument
///                                                             TableScan: t
/// ```
fn computed_before(aggregate: Aggregate, requests: &[NodeRequest], names: &mut Names) -> Result<Aggregate> {
    let keys = aggregate.schema.fields().len() - aggregate.aggr_expr.len();
    let directions =
        |number: usize| requests.iter().filter(|request| request.output.columns.contains(&(keys + number))).count();
    if (0..aggregate.aggr_expr.len()).all(|number| directions(number) < 2) {
        return Ok(aggregate);
    }
    let Aggregate { input, group_expr, aggr_expr, .. } = aggregate;
    let mut exprs = columns(input.schema());
    let mut replaced = vec![];
    for (number, function) in aggr_expr.into_iter().enumerate() {
        let is_plain = match unaliased(&function) {
            Expr::AggregateFunction(call) => call.params.filter.is_none() && call.params.order_by.is_empty(),
            _ => return internal_err!("{function} is no aggregate function"),
        };
        if !is_plain || directions(number) < 2 {
            replaced.push(function);
            continue;
        }
        let name = function.qualified_name().1;
        let computed = unaliased(&function).clone().map_children(|argument| {
            if size_of(&argument)? < LARGE {
                return Ok(Transformed::no(argument));
            }
            let column = names.column(argument, &mut exprs, |names| names.part("argument"));
            Ok(Transformed::yes(Expr::Column(column)))
        })?;
        replaced.push(if computed.transformed { computed.data.alias(name) } else { function });
    }
    let added = exprs.len() > input.schema().fields().len();
    let input = if added { Arc::new(LogicalPlan::Projection(Projection::try_new(exprs, input)?)) } else { input };
    Aggregate::try_new(input, group_expr, replaced)
}

fn size_of(expr: &Expr) -> Result<usize> {
    let mut size = 0;
    expr.apply(|_| {
        size += 1;
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(size)
}
