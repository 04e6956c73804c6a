//! Moves calls out of the conditions of joins.

use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_common::{Column, JoinType, Result};
use datafusion_expr::expr::ScalarFunction;
use datafusion_expr::utils::{conjunction, split_conjunction, split_conjunction_owned};
use datafusion_expr::{Expr, Filter, Join, LogicalPlan};
use std::sync::Arc;
use xql_autodiff::vocabulary::columns::columns_read;

use super::by_row::differentiates_items;
use crate::vocabulary::decorrelated::subqueries_read;
use crate::vocabulary::names::{Names, restore, with_columns};
use crate::vocabulary::nodes::any_part;
use crate::vocabulary::operators::{Recognize, is_call};

/// The sides of a join, with the calls that they compute.
struct Sides {
    plans: [LogicalPlan; 2],
    calls: [Vec<Expr>; 2],
}

/// Moves calls with subqueries out of the condition of a join: each becomes a column of the side whose columns it
/// reads. If a call reads both sides of an inner join, its part of the condition becomes a filter above the join. Other
/// calls stay, and are refused.
///
/// ```text
/// Inner Join: Filter: grad((SELECT ...), a.val) > b.val         Inner Join: Filter: ∂condition > b.val
///   SubqueryAlias: a                                      ->      Projection: a.val, grad((SELECT ...), a.val) AS ∂condition
///   SubqueryAlias: b                                                SubqueryAlias: a
///                                                                 SubqueryAlias: b
/// ```
pub fn conditions_apart(
    plan: LogicalPlan,
    recognize: Recognize,
    names: &mut Names,
) -> Result<Transformed<LogicalPlan>> {
    let is_asked = |part: &Expr| is_call(part, recognize) && reads_queries(part);
    let LogicalPlan::Join(join) = plan else { return Ok(Transformed::no(plan)) };
    let of_rows = of_rows(&join, recognize)?;
    let plan = LogicalPlan::Join(join);
    let is_concerned = !of_rows.is_empty() || any_part(&plan, is_asked)?;
    let join = match plan {
        LogicalPlan::Join(join) if is_concerned => join,
        other => return Ok(Transformed::no(other)),
    };
    let Join { left, right, on, filter, join_type, join_constraint, schema, null_equality, null_aware } = join;
    let mut sides = Sides { plans: [left, right].map(Arc::unwrap_or_clone), calls: [vec![], vec![]] };
    let mut keys = vec![];
    for (left, right) in on {
        keys.push((sides.without(left, is_asked, names)?, sides.without(right, is_asked, names)?));
    }
    let (mut conditions, mut above) = (vec![], vec![]);
    for condition in filter.into_iter().flat_map(split_conjunction_owned) {
        let is_of_rows = of_rows.contains(&condition);
        let condition = sides.without(condition, is_asked, names)?;
        let is_of_both = join_type == JoinType::Inner && condition.exists(|part| Ok(is_asked(part)))? || is_of_rows;
        let asked = if is_of_both { &mut above } else { &mut conditions };
        asked.push(condition);
    }
    let Sides { plans: [left, right], calls: [of_left, of_right] } = sides;
    let [left, right] = [with_columns(left, of_left)?, with_columns(right, of_right)?].map(Arc::new);
    let filter = conjunction(conditions);
    let join = Join::try_new(left, right, keys, filter, join_type, join_constraint, null_equality, null_aware)?;
    let mut plan = LogicalPlan::Join(join);
    if let Some(above) = conjunction(above) {
        plan = LogicalPlan::Filter(Filter::try_new(above, Arc::new(plan))?);
    }
    restore(plan, &schema).map(Transformed::yes)
}

/// Returns the parts of the condition of an inner join that differentiate a query of one side by the rows of the other.
///
/// ```sql
/// SELECT h.k, w.k, grad(h.val, w.val) FROM h JOIN w ON grad(h.val, w.val) <> 0
/// ```
fn of_rows(join: &Join, recognize: Recognize) -> Result<Vec<Expr>> {
    let mut found = vec![];
    let Some(filter) = join.filter.as_ref().filter(|_| join.join_type == JoinType::Inner) else { return Ok(found) };
    for condition in split_conjunction(filter) {
        if condition.exists(|part| Ok(is_call(part, recognize)))? {
            let rows = LogicalPlan::Join(Join { filter: None, ..join.clone() });
            let asked = LogicalPlan::Filter(Filter::try_new(condition.clone(), Arc::new(rows))?);
            if differentiates_items(&asked, recognize)? {
                found.push(condition.clone());
            }
        }
    }
    Ok(found)
}

/// Returns whether the function of a call reads subqueries.
fn reads_queries(call: &Expr) -> bool {
    let Expr::ScalarFunction(ScalarFunction { args, .. }) = call else { return false };
    args.first().is_some_and(|function| subqueries_read(function).is_ok_and(|queries| !queries.is_empty()))
}

impl Sides {
    /// Returns a condition that reads calls over the columns of one side as columns.
    fn without(&mut self, condition: Expr, is_asked: impl Fn(&Expr) -> bool, names: &mut Names) -> Result<Expr> {
        let condition = condition.transform_down(|part| {
            let side = if is_asked(&part) { self.side_of(&part) } else { None };
            let Some(side) = side else { return Ok(Transformed::no(part)) };
            let name = names.part("condition");
            self.calls[side].push(part.alias(name.clone()));
            let column = Expr::Column(Column::new_unqualified(name));
            Ok(Transformed::new(column, true, TreeNodeRecursion::Jump))
        })?;
        Ok(condition.data)
    }

    /// Returns the number of the side that has all columns of an expression.
    fn side_of(&self, expr: &Expr) -> Option<usize> {
        let read = columns_read(expr);
        self.plans.iter().position(|plan| read.iter().all(|column| plan.schema().has_column(column)))
    }
}
