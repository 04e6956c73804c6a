//! Merges the branches of a union into one node, for one sweep over all of their calls.

use datafusion_common::tree_node::TreeNode;
use datafusion_common::{Column, JoinType, NullEquality, Result, TableReference};
use datafusion_expr::expr::Case;
use datafusion_expr::{Expr, ExprSchemable, LogicalPlan, Projection, Union, lit};
use std::collections::HashSet;
use std::sync::Arc;
use xql_autodiff::vocabulary::columns::{has_subquery, is_volatile};

use crate::vjp::joined;
use crate::vocabulary::expressions::unaliased;
use crate::vocabulary::names::{Names, columns};
use crate::vocabulary::nodes::any_node_behind;
use crate::vocabulary::operators::{Recognize, is_call};

/// Rewrites a union of rows of tables, with derivatives by these rows, as one projection over a full join. Its
/// derivatives are one sweep. Once the calls are rewritten, `crate::disjoint` turns the join into a union again.
///
/// ```sql
/// SELECT 'w' AS name, grad((SELECT l FROM loss), val) AS d FROM w UNION ALL SELECT 'v', grad((SELECT l FROM loss), val) FROM v
/// ```
///
/// ```text
/// Projection: CASE WHEN ∂part IS NOT NULL THEN 'w' ELSE 'v' END AS name, CASE WHEN ∂part IS NOT NULL THEN grad(...) ELSE grad(...) END AS d
///   Full Join: ∂part = ∂part #2
///     Projection: w.val, 0 AS ∂part
///       TableScan: w
///     Projection: v.val, 1 AS ∂part #2
///       TableScan: v
/// ```
///
/// Returns `None` if there are no two such branches, or if two branches read the same table, which would then be read
/// twice in one query.
///
/// # Errors
/// If a plan cannot be gone through.
pub fn in_one_node(union: &Union, recognize: Recognize, names: &mut Names) -> Result<Option<LogicalPlan>> {
    let mut branches = vec![];
    if !find_branches(union, &mut branches) {
        return Ok(None);
    }
    let has_by_row = |branch: &&&Projection| branch.expr.iter().any(|expr| has_by_row(expr, recognize));
    if branches.iter().filter(has_by_row).count() < 2
        || !are_of_one_type(union, &branches)?
        || !have_tables_of_their_own(&branches)?
    {
        return Ok(None);
    }
    let mut parts = vec![];
    let mut rows = vec![];
    for (number, branch) in (0_i64..).zip(&branches) {
        let part = names.part("part");
        let mut exprs = columns(branch.input.schema());
        exprs.push(lit(number).alias(part.clone()));
        parts.push(Column::new_unqualified(part));
        rows.push(LogicalPlan::Projection(Projection::try_new(exprs, Arc::clone(&branch.input))?));
    }
    let mut exprs = vec![];
    for (index, (table, field)) in union.schema.iter().enumerate() {
        let values: Vec<_> = branches.iter().map(|branch| unaliased(&branch.expr[index]).clone()).collect();
        exprs.push(in_its_part(values, &parts).alias_qualified(table.cloned(), field.name()));
    }
    let rows = beside(rows, &parts)?;
    Ok(Some(LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(rows))?)))
}

/// Collects the branches of a union and of unions in it, as in `a UNION ALL b UNION ALL c`. Returns false if a branch
/// is no projection.
fn find_branches<'u>(union: &'u Union, found: &mut Vec<&'u Projection>) -> bool {
    union.inputs.iter().all(|input| match input.as_ref() {
        LogicalPlan::Projection(projection) => {
            found.push(projection);
            true
        }
        LogicalPlan::Union(union) => find_branches(union, found),
        _ => false,
    })
}

/// Returns whether an expression has a derivative of a subquery.
fn has_by_row(expr: &Expr, recognize: Recognize) -> bool {
    let is_by_row = |part: &Expr| match part {
        Expr::ScalarFunction(call) => is_call(part, recognize) && call.args.first().is_some_and(has_subquery),
        _ => false,
    };
    let found = expr.exists(|part| Ok(is_by_row(part)));
    debug_assert!(found.is_ok(), "the closure never fails");
    found.unwrap_or(false)
}

/// Returns whether the columns of the branches can be columns of one node. They have the types of the union, are
/// nullable or literals, have no metadata, and read no volatile functions and outer columns.
fn are_of_one_type(union: &Union, branches: &[&Projection]) -> Result<bool> {
    for branch in branches {
        for (expr, field) in branch.expr.iter().zip(union.schema.fields()) {
            let data_type = expr.get_type(branch.input.schema())?;
            let is_plain =
                field.metadata().is_empty() && (field.is_nullable() || matches!(unaliased(expr), Expr::Literal(..)));
            if !is_plain || data_type != *field.data_type() || is_volatile(expr) || expr.contains_outer() {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// Returns whether no two branches read the same table or have a column of the same name.
fn have_tables_of_their_own(branches: &[&Projection]) -> Result<bool> {
    let mut tables: HashSet<TableReference> = HashSet::new();
    let mut names = HashSet::new();
    for branch in branches {
        let mut own = HashSet::new();
        let mut reads_outside = false;
        any_node_behind(&branch.input, |node| {
            reads_outside |= node.contains_outer_reference();
            if let LogicalPlan::TableScan(scan) = node {
                own.insert(scan.table_name.clone());
            }
            Ok(false)
        })?;
        let has_new_names = branch.input.schema().columns().into_iter().all(|column| names.insert(column));
        if reads_outside || !has_new_names || own.iter().any(|table| tables.contains(table)) {
            return Ok(false);
        }
        tables.extend(own);
    }
    Ok(true)
}

/// Returns the value of the part that a row is of.
fn in_its_part(mut values: Vec<Expr>, parts: &[Column]) -> Expr {
    let last = values.pop();
    let branches = parts.iter().zip(values).map(|(part, value)| {
        let is_own = Expr::Column(part.clone()).is_not_null();
        (Box::new(is_own), Box::new(value))
    });
    Expr::Case(Case::new(None, branches.collect(), last.map(Box::new)))
}

/// Returns the rows of all parts, by a balanced tree of joins: in a chain each would have the columns of all before it.
fn beside(mut rows: Vec<LogicalPlan>, parts: &[Column]) -> Result<LogicalPlan> {
    if rows.len() < 2 {
        return Ok(rows.pop().unwrap_or_default());
    }
    let middle = rows.len().div_ceil(2);
    let others = rows.split_off(middle);
    let on = vec![(Expr::Column(parts[0].clone()), Expr::Column(parts[middle].clone()))];
    let (left, right) = (beside(rows, &parts[..middle])?, beside(others, &parts[middle..])?);
    joined(left, right, on, None, JoinType::Full, NullEquality::NullEqualsNothing)
}
