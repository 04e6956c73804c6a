//! Rewrites grouping sets and DISTINCT ON as plain aggregations, which reverse mode can linearize.
//!
//! Grouping sets are the union of the groups by each set, and DISTINCT ON keeps the first row of each group.
//!
//! ```text
//! Aggregate: groupBy=[[ROLLUP (a)]], aggr=[[sum(x)]]
//! ->
//! Union
//!   Projection: a, 0 AS __grouping_id, sum(x)
//!     Aggregate: groupBy=[[a]], aggr=[[sum(x)]]
//!   Projection: NULL AS a, 1 AS __grouping_id, sum(x)
//!     Aggregate: groupBy=[[]], aggr=[[sum(x)]]
//! ```

use datafusion_common::{Result, ScalarValue, plan_err};
use datafusion_expr::utils::grouping_set_to_exprlist;
use datafusion_expr::{Aggregate, DistinctOn, Expr, GroupingSet, LogicalPlan, Projection, Union, cast, lit};
use datafusion_functions_aggregate::count::count_all;
use datafusion_functions_aggregate::first_last::first_value;
use std::sync::Arc;

use crate::vocabulary::names::columns;

/// Rewrites an aggregation over grouping sets as the union of one aggregation for each set. Returns `None` for other
/// aggregations.
pub fn split_grouping_sets(aggregate: &Aggregate) -> Result<Option<LogicalPlan>> {
    let [Expr::GroupingSet(grouping)] = aggregate.group_expr.as_slice() else { return Ok(None) };
    let keys = grouping_set_to_exprlist(&aggregate.group_expr)?;
    let sets = sets(grouping);
    let mut inputs = vec![];
    for (number, set) in sets.iter().enumerate() {
        if sets[..number].iter().any(|other| other.len() == set.len() && set.iter().all(|key| other.contains(key))) {
            return plan_err!("gradients by row cannot pass through equal grouping sets. Write them as a UNION ALL");
        }
        inputs.push(groups(aggregate, &keys, set)?);
    }
    if inputs.len() == 1 {
        return Ok(inputs.pop());
    }
    Ok(Some(LogicalPlan::Union(Union::try_new_with_loose_types(inputs.into_iter().map(Arc::new).collect())?)))
}

fn sets(grouping: &GroupingSet) -> Vec<Vec<Expr>> {
    match grouping {
        GroupingSet::GroupingSets(sets) => sets.clone(),
        GroupingSet::Rollup(keys) => (0..=keys.len()).rev().map(|count| keys[..count].to_vec()).collect(),
        GroupingSet::Cube(keys) => keys.iter().fold(vec![vec![]], |sets, key| {
            let with = sets.iter().map(|set: &Vec<Expr>| set.iter().chain([key]).cloned().collect());
            with.chain(sets.clone()).collect()
        }),
    }
}

/// Returns the groups by one set, with the columns of the aggregation over all sets.
fn groups(aggregate: &Aggregate, keys: &[&Expr], set: &[Expr]) -> Result<LogicalPlan> {
    let mut functions = aggregate.aggr_expr.clone();
    if set.is_empty() && functions.is_empty() {
        // The group of all rows needs a column, even if nobody reads one: SELECT g FROM t GROUP BY ROLLUP (g)
        functions.push(count_all());
    }
    let groups = Aggregate::try_new(Arc::clone(&aggregate.input), set.to_vec(), functions)?;
    let of_groups = columns(&groups.schema);
    let mut id = 0_u64;
    let mut exprs = vec![];
    for ((table, field), key) in aggregate.schema.iter().zip(keys) {
        let position = set.iter().position(|own| own == *key);
        id = id << 1 | u64::from(position.is_none());
        let value = match position {
            Some(position) => of_groups[position].clone(),
            None => Expr::Literal(ScalarValue::try_from(field.data_type())?, None),
        };
        exprs.push(value.alias_qualified(table.cloned(), field.name()));
    }
    let mut rest = aggregate.schema.iter().skip(keys.len());
    exprs.extend(rest.next().map(|(_, field)| cast(lit(id), field.data_type().clone()).alias(field.name())));
    let values = of_groups.into_iter().skip(set.len());
    exprs.extend(values.zip(rest).map(|(value, (table, field))| value.alias_qualified(table.cloned(), field.name())));
    Ok(LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(LogicalPlan::Aggregate(groups)))?))
}

/// Rewrites DISTINCT ON as an aggregation with `first_value`.
///
/// ```text
/// DistinctOn: on_expr=[[g]], select_expr=[[x]], sort_expr=[[g, t]]
/// ->
/// Projection: first_value(x) AS x
///   Aggregate: groupBy=[[g]], aggr=[[first_value(x) ORDER BY [g, t]]]
/// ```
pub fn first_rows(on: &DistinctOn) -> Result<LogicalPlan> {
    let order = on.sort_expr.clone().unwrap_or_default();
    let first = |expr: &Expr| first_value(expr.clone().unalias(), order.clone());
    let (keys, values) = (on.on_expr.clone(), on.select_expr.iter().map(first).collect());
    let groups = Aggregate::try_new(Arc::clone(&on.input), keys, values)?;
    let values = columns(&groups.schema).split_off(on.on_expr.len());
    let named = values.into_iter().zip(on.schema.iter());
    let named = named.map(|(value, (table, field))| value.alias_qualified(table.cloned(), field.name()));
    Ok(LogicalPlan::Projection(Projection::try_new(named.collect(), Arc::new(LogicalPlan::Aggregate(groups)))?))
}
