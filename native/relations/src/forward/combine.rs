//! Nodes that combine inputs or rows: joins, unions, DISTINCT, UNNEST.

use arrow::datatypes::DataType;
use datafusion_common::{Column, DFSchema, Result, ScalarValue, plan_err};
use datafusion_expr::{
    Aggregate, Distinct, DistinctOn, Expr, ExprSchemable, Join, JoinType, LogicalPlan, Projection, Union, Unnest, when,
};
use datafusion_functions_aggregate::expr_fn::{max, min};
use std::collections::BTreeSet;
use std::sync::Arc;

use super::carrier::{Carried, Carrier, Variable};
use super::draws::Draws;
use crate::tangents::tangent::{Linearized, Tangent, Tangents};
use crate::vocabulary::expressions::one_zero;
use crate::vocabulary::names::{Names, columns};
use crate::vocabulary::origin::is_unnested;

impl Carrier<'_> {
    /// Tangents pass a join as its columns do, so they are NULL on rows that an outer join extends.
    ///
    /// ```text
    /// Left Join:  Filter: m.id = n.i
    ///   Projection: d.id, p.w, p.w * d.x AS q
    ///   TableScan: n
    /// ```
    ///
    /// becomes
    ///
    /// ```text
    /// Left Join:  Filter: m.id = n.i
    ///   Projection: d.id, p.w, p.w * d.x AS q, jvp(p.w * d.x, p.w, 1) AS ∂q/∂w
    ///   TableScan: n
    /// ```
    pub fn join(&mut self, join: Join, variables: [Variable; 2], wanted: &BTreeSet<usize>) -> Result<Carried> {
        let width = join.left.schema().fields().len();
        // Those that only test the left side have no columns of it.
        let shift = match join.join_type {
            JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => 0,
            _ => width,
        };
        let to_left = wanted.iter().copied().filter(|index| *index < shift).collect();
        let to_right = wanted.iter().filter(|index| **index >= shift).map(|index| index - shift).collect();
        let plan = LogicalPlan::Join(join);
        let [left, right] = [plan.inputs()[0].clone(), plan.inputs()[1].clone()];
        let left = self.carry(left, variables[0], &to_left)?;
        let right = self.carry(right, variables[1], &to_right)?;
        let mut tangents = left.tangents;
        for (index, tangent) in right.tangents.iter() {
            tangents.set(index + shift, tangent.clone());
        }
        let plan = plan.with_new_exprs(plan.expressions(), vec![left.plan, right.plan])?;
        Ok(Carried { plan, tangents })
    }

    /// A column of a union has a tangent column if it varies in one of the inputs.
    ///
    /// ```text
    /// Union
    ///   Projection: p.w, p.w * d.x AS q
    ///   Projection: p.w, 3 AS q
    /// ```
    ///
    /// becomes
    ///
    /// ```text
    /// Union
    ///   Projection: w, q, ∂q/∂w AS ∂q/∂w #2
    ///     Projection: p.w, p.w * d.x AS q, jvp(p.w * d.x, p.w, 1) AS ∂q/∂w
    ///   Projection: w, q, 0 AS ∂q/∂w #2
    ///     Projection: p.w, 3 AS q
    /// ```
    pub fn union(&mut self, union: &Union, variables: Vec<Variable>, wanted: &BTreeSet<usize>) -> Result<Carried> {
        let mut inputs = vec![];
        for (input, variable) in union.inputs.iter().zip(variables) {
            inputs.push((input.schema(), self.carry(input.as_ref().clone(), variable, wanted)?));
        }
        let mut tangents = Tangents::default();
        let mut added = vec![];
        for index in wanted {
            let all_are = |tangent| inputs.iter().all(|(_, input)| input.tangents.get(*index) == tangent);
            if all_are(Tangent::One) {
                tangents.set(*index, Tangent::One);
            } else if !all_are(Tangent::Zero) {
                let name = self.names.tangent(union.schema.field(*index).name(), &self.variable);
                tangents.set(*index, Tangent::Column(Column::new_unqualified(name.clone())));
                added.push((*index, name));
            }
        }
        if added.is_empty() {
            return Ok(Carried { plan: LogicalPlan::Union(union.clone()), tangents });
        }
        let mut widened = vec![];
        for (schema, input) in inputs {
            widened.push(Arc::new(self.with_columns(input, schema, &union.schema, &added)?));
        }
        Ok(Carried { plan: widened_union(union, widened)?, tangents })
    }

    /// The columns of `schema` in their order under the names of `named`, and after them the tangents of some under the given names.
    ///
    /// DataFusion 54 reads the inputs of a union in a union by the names of the first of them.
    pub fn with_columns(
        &self,
        input: Carried,
        schema: &DFSchema,
        named: &DFSchema,
        added: &[(usize, String)],
    ) -> Result<LogicalPlan> {
        let own = columns(schema);
        let mut exprs = vec![];
        for (column, (table, field)) in own.iter().zip(named.iter()) {
            let is_named = matches!(column, Expr::Column(column) if column.name == *field.name());
            exprs.push(match is_named {
                true => column.clone(),
                false => column.clone().alias_qualified(table.cloned(), field.name()),
            });
        }
        for (index, name) in added {
            let tangent = Linearized::Known(input.tangents.get(*index));
            let tangent = self.column(&tangent, &own[*index], schema, input.plan.schema())?;
            exprs.push(tangent.alias(name.clone()));
        }
        Ok(LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(input.plan))?))
    }

    /// Equal rows are one row, whose tangents are those they agree on. Where they differ there is no derivative: NaN.
    ///
    /// ```text
    /// Distinct:
    ///   Projection: p.w, p.w * d.x AS q
    /// ```
    ///
    /// becomes
    ///
    /// ```text
    /// Projection: w, q, CASE WHEN ∂q low + 0 != ∂q high + 0 THEN NaN ELSE ∂q low END AS ∂q/∂w #2
    ///   Aggregate: groupBy=[[w, q]], aggr=[[min(∂q/∂w) AS ∂q low, max(∂q/∂w) AS ∂q high]]
    ///     Projection: p.w, p.w * d.x AS q, jvp(p.w * d.x, p.w, 1) AS ∂q/∂w
    /// ```
    pub fn distinct(
        &mut self,
        input: Arc<LogicalPlan>,
        variable: Variable,
        wanted: &BTreeSet<usize>,
    ) -> Result<Carried> {
        let carried = self.by_value(|carrier| carrier.carry(input.as_ref().clone(), variable, wanted))?;
        let mut tangents = Tangents::default();
        let mut agreements = Agreements::default();
        for (index, tangent) in carried.tangents.iter() {
            let tangent = match tangent {
                Tangent::Column(column) => {
                    let name = input.schema().field(index).name().clone();
                    let tangent = Expr::Column(column.clone());
                    let data_type = tangent.get_type(carried.plan.schema())?;
                    Tangent::Column(agreements.add(self, tangent, None, &data_type, &name)?)
                }
                constant => constant.clone(),
            };
            tangents.set(index, tangent);
        }
        if agreements.exprs.is_empty() {
            return Ok(Carried { plan: LogicalPlan::Distinct(Distinct::All(input)), tangents });
        }
        let keys = columns(input.schema());
        let aggregate = Aggregate::try_new(Arc::new(carried.plan), keys.clone(), agreements.aggregates)?;
        let exprs = keys.into_iter().chain(agreements.exprs).collect();
        let plan = Projection::try_new(exprs, Arc::new(LogicalPlan::Aggregate(aggregate)))?;
        Ok(Carried { plan: LogicalPlan::Projection(plan), tangents })
    }

    /// DISTINCT ON keeps a row, and so its tangents.
    ///
    /// ```text
    /// DistinctOn: on_expr=[[d.g]], select_expr=[[p.w, p.w * d.x AS q]]
    /// ```
    ///
    /// becomes
    ///
    /// ```text
    /// DistinctOn: on_expr=[[d.g]], select_expr=[[p.w, p.w * d.x AS q, jvp(p.w * d.x, p.w, 1) AS ∂q/∂w]]
    /// ```
    pub fn distinct_on(&mut self, on: DistinctOn, variable: Variable, wanted: &BTreeSet<usize>) -> Result<Carried> {
        let DistinctOn { on_expr, mut select_expr, sort_expr, input, .. } = on;
        // The order is evaluated for each column that is selected.
        let mut draws = Draws::new(self.names);
        let on_expr = on_expr.into_iter().map(|on| draws.ordering(on)).collect();
        let sort_expr = sort_expr.map(|order| draws.order(order));
        let input = draws.below(input)?;
        let primal: Vec<_> = wanted.iter().map(|index| (*index, select_expr[*index].clone())).collect();
        let carried = self.input(&input, variable, primal.iter().map(|(_, expr)| expr))?;
        let mut tangents = Tangents::default();
        for (index, primal) in primal {
            let name = primal.qualified_name().1;
            let tangent = self.linearize(&primal, input.schema(), &carried.tangents)?;
            tangents.set(index, self.add_column(tangent, &name, &mut select_expr));
        }
        let on = DistinctOn::try_new(on_expr, select_expr, sort_expr, Arc::new(carried.plan))?;
        Ok(Carried { plan: LogicalPlan::Distinct(Distinct::On(on)), tangents })
    }

    /// Columns beside an unnested one keep their tangents. Elements of lists and structs have none.
    ///
    /// ```text
    /// Unnest: lists[v] structs[]
    ///   Projection: l.w, l.w * 2 AS q, l.v
    /// ```
    ///
    /// becomes
    ///
    /// ```text
    /// Unnest: lists[v] structs[]
    ///   Projection: l.w, l.w * 2 AS q, l.v, jvp(l.w * 2, l.w, 1) AS ∂q/∂w
    /// ```
    pub fn unnest(&mut self, unnest: &Unnest, variable: Variable, wanted: &BTreeSet<usize>) -> Result<Carried> {
        let source = |index: usize| unnest.dependency_indices.get(index).copied();
        let below = wanted.iter().filter_map(|index| source(*index)).collect();
        let carried = self.carry(unnest.input.as_ref().clone(), variable, &below)?;
        let mut tangents = Tangents::default();
        for index in wanted {
            let Some(below) = source(*index) else { continue };
            let tangent = carried.tangents.get(below);
            if is_unnested(unnest, below) && tangent != Tangent::Zero {
                return plan_err!(
                    "{} comes out of a list or struct that the query computes from {}. xql-ffi does not differentiate lists \
                     and structs",
                    unnest.schema.field(*index).name(),
                    self.variable
                );
            }
            tangents.set(*index, tangent);
        }
        let plan = datafusion_expr::builder::unnest_with_options(
            carried.plan,
            unnest.exec_columns.clone(),
            unnest.options.clone(),
        )?;
        Ok(Carried { plan, tangents })
    }
}

/// A union of inputs that have more columns behind those that it had.
pub fn widened_union(union: &Union, widened: Vec<Arc<LogicalPlan>>) -> Result<LogicalPlan> {
    // The names of the first input, the nullability of all.
    let first = widened[0].schema();
    let mut fields: Vec<_> = union.schema.iter().map(|(table, field)| (table.cloned(), Arc::clone(field))).collect();
    for position in fields.len()..first.fields().len() {
        let nullable = widened.iter().any(|input| input.schema().field(position).is_nullable());
        let field = first.field(position).as_ref().clone().with_nullable(nullable);
        fields.push((None, Arc::new(field)));
    }
    let schema = DFSchema::new_with_metadata(fields, union.schema.metadata().clone())?;
    Ok(LogicalPlan::Union(Union { inputs: widened, schema: Arc::new(schema) }))
}

/// The tangents that the rows of a group agree on: the aggregates that tell, behind those that there are, and the columns
/// computed from them.
#[derive(Debug, Default)]
pub struct Agreements {
    pub aggregates: Vec<Expr>,
    pub exprs: Vec<Expr>,
}

impl Agreements {
    /// Adds a tangent of this type, which is NULL in all rows of a group or in none.
    ///
    /// A key that grouping sets roll up is NULL where they do, and so is its tangent: of `GROUP BY w, ROLLUP(v)` the second set
    /// has all values of `v` in one group, whose `v` is NULL.
    pub fn add(
        &mut self,
        carrier: &mut Carrier,
        tangent: Expr,
        rolled_up: Option<Expr>,
        data_type: &DataType,
        name: &str,
    ) -> Result<Column> {
        let mut end = |of_all: Expr, end: &str| {
            let part = |names: &mut Names| names.part(&format!("{name} {end}"));
            Expr::Column(carrier.names.column(of_all, &mut self.aggregates, part))
        };
        let (low, high) = (end(min(tangent.clone()), "low"), end(max(tangent), "high"));
        let none = Expr::Literal(ScalarValue::from(f64::NAN).cast_to(data_type)?, None);
        let differ = one_zero(low.clone(), data_type)?.not_eq(one_zero(high, data_type)?);
        let agreed = when(differ, none).otherwise(low)?;
        let agreed = match rolled_up {
            Some(key) => when(key.is_not_null(), agreed).end()?,
            None => agreed,
        };
        let name = carrier.names.tangent(name, &carrier.variable);
        self.exprs.push(agreed.alias(name.clone()));
        Ok(Column::new_unqualified(name))
    }
}
