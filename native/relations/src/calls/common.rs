//! Computes derivatives by row once that occur in a condition and in the projection above it.

use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_common::{Column, Result, ScalarValue};
use datafusion_expr::utils::{conjunction, split_conjunction};
use datafusion_expr::{BinaryExpr, Expr, Filter, LogicalPlan, Operator, Projection};
use std::sync::Arc;
use xql_autodiff::vocabulary::columns::is_volatile;

use super::by_row::has_variables;
use super::conditions::conditions_apart;
use crate::vocabulary::names::{Names, with_columns};
use crate::vocabulary::operators::{Recognize, has_call, is_call};

/// Moves the calls that a projection and the condition below it share into a projection below both.
///
/// ```text
/// Projection: h.k, grad(h.val, w.val)                 Projection: h.k, ∂derivative
///   Filter: grad(h.val, w.val) != 0 AND w.k > 1   ->    Filter: ∂derivative != 0
///     Cross Join:                                         Projection: h.k, ..., grad(h.val, w.val) AS ∂derivative
///       ...                                                 Filter: w.k > 1
///                                                             Cross Join:
/// ```
///
/// `nonzero` gets the names of the columns that the condition compares with 0 by `<>`. Rows in which they are 0 may be
/// missing.
pub fn calls_in_common(
    plan: LogicalPlan,
    recognize: Recognize,
    names: &mut Names,
    nonzero: &mut Vec<String>,
) -> Result<Transformed<LogicalPlan>> {
    if !matches!(plan, LogicalPlan::Projection(_)) || !has_call(&plan, recognize)? {
        return Ok(Transformed::no(plan));
    }
    let plan = plan.map_children(|input| conditions_apart(input, recognize, names))?.data;
    let LogicalPlan::Projection(projection) = &plan else { return Ok(Transformed::no(plan)) };
    let LogicalPlan::Filter(filter) = projection.input.as_ref() else { return Ok(Transformed::no(plan)) };
    let calls = common_calls(projection, &filter.predicate, recognize)?;
    if calls.is_empty() || !has_variables(projection.input.as_ref(), recognize)? {
        return Ok(Transformed::no(plan));
    }
    let columns: Vec<_> = calls.iter().map(|_| Column::new_unqualified(names.part("derivative"))).collect();
    let over = |expr: Expr| {
        expr.transform_down(|part| match calls.iter().position(|call| *call == part) {
            Some(number) => Ok(Transformed::new(Expr::Column(columns[number].clone()), true, TreeNodeRecursion::Jump)),
            None => Ok(Transformed::no(part)),
        })
    };
    let (mut below, mut above) = (vec![], vec![]);
    for condition in split_conjunction(&filter.predicate) {
        let rewritten = over(condition.clone())?;
        if let Some(Expr::Column(column)) = differs_from_0(&rewritten.data) {
            nonzero.extend(columns.contains(column).then(|| column.name.clone()));
        }
        let part = if condition.exists(|part| Ok(is_call(part, recognize)))? { &mut above } else { &mut below };
        part.push(rewritten.data);
    }
    let mut input = Arc::clone(&filter.input);
    if let Some(condition) = conjunction(below) {
        input = Arc::new(LogicalPlan::Filter(Filter::try_new(condition, input)?));
    }
    let calls = calls.iter().zip(&columns).map(|(call, column)| call.clone().alias(column.name.clone())).collect();
    input = Arc::new(with_columns(Arc::unwrap_or_clone(input), calls)?);
    if let Some(condition) = conjunction(above) {
        input = Arc::new(LogicalPlan::Filter(Filter::try_new(condition, input)?));
    }
    let mut exprs = vec![];
    for expr in &projection.expr {
        let (table, name) = expr.qualified_name();
        let rewritten = over(expr.clone())?;
        let is_named = !rewritten.transformed || matches!(rewritten.data, Expr::Alias(_));
        exprs.push(if is_named { rewritten.data } else { rewritten.data.alias_qualified(table, name) });
    }
    Ok(Transformed::yes(LogicalPlan::Projection(Projection::try_new(exprs, input)?)))
}

/// Returns the calls that a projection and a condition have, each once.
fn common_calls(projection: &Projection, condition: &Expr, recognize: Recognize) -> Result<Vec<Expr>> {
    let mut calls = vec![];
    condition.apply(|part| {
        if !is_call(part, recognize) {
            return Ok(TreeNodeRecursion::Continue);
        }
        let mut is_common = false;
        for expr in &projection.expr {
            is_common |= expr.exists(|other| Ok(other == part))?;
        }
        if is_common && !is_volatile(part) && !calls.contains(part) {
            calls.push(part.clone());
        }
        Ok(TreeNodeRecursion::Jump)
    })?;
    Ok(calls)
}

/// Returns the expression that a condition asks to differ from 0.
fn differs_from_0(condition: &Expr) -> Option<&Expr> {
    let Expr::BinaryExpr(BinaryExpr { left, op: Operator::NotEq, right }) = condition else { return None };
    match (is_0(left), is_0(right)) {
        (false, true) => Some(left),
        (true, false) => Some(right),
        _ => None,
    }
}

/// Returns whether an expression is the number 0, as the planner has made it of a type.
fn is_0(expr: &Expr) -> bool {
    match expr {
        Expr::Cast(cast) => is_0(&cast.expr),
        Expr::Literal(value, _) => ScalarValue::new_zero(&value.data_type()).is_ok_and(|zero| zero == *value),
        _ => false,
    }
}
