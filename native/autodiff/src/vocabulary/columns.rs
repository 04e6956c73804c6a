//! The columns that an expression reads.

use datafusion_common::Column;
use datafusion_common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion_expr::expr::{Exists, InSubquery, SetComparison};
use datafusion_expr::logical_plan::Subquery;
use datafusion_expr::{Expr, LogicalPlan};
use std::collections::HashSet;

use super::functions::stop_gradient_argument;

/// Returns whether an expression reads columns in a way that its children do not show, and is kept whole.
pub fn is_opaque(expr: &Expr) -> bool {
    matches!(
        expr,
        Expr::ScalarSubquery(_)
            | Expr::Exists(_)
            | Expr::InSubquery(_)
            | Expr::SetComparison(_)
            | Expr::HigherOrderFunction(_)
            | Expr::Lambda(_)
            | Expr::AggregateFunction(_)
            | Expr::WindowFunction(_)
            | Expr::GroupingSet(_)
    )
}

/// Returns whether each evaluation of an expression may give another value, because it calls a volatile function, or a subquery in it does,
/// as `(SELECT random())`.
pub fn is_volatile(expr: &Expr) -> bool {
    let found = expr.exists(|part| {
        Ok(part.is_volatile_node() || subquery_of(part).is_some_and(|subquery| is_volatile_plan(&subquery.subquery)))
    });
    debug_assert!(found.is_ok(), "the closure never fails");
    found.unwrap_or(true)
}

fn is_volatile_plan(plan: &LogicalPlan) -> bool {
    let mut found = false;
    let visited = plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            found = found || is_volatile(expr);
            Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })
    });
    debug_assert!(visited.is_ok(), "the closure never fails");
    found
}

/// Returns whether an expression contains a subquery.
pub fn has_subquery(expr: &Expr) -> bool {
    let found = expr.exists(|part| Ok(subquery_of(part).is_some()));
    debug_assert!(found.is_ok(), "the closure never fails");
    found.unwrap_or(true)
}

/// Returns the subquery that an expression is or is compared with.
pub fn subquery_of(expr: &Expr) -> Option<&Subquery> {
    match expr {
        Expr::ScalarSubquery(subquery)
        | Expr::Exists(Exists { subquery, .. })
        | Expr::InSubquery(InSubquery { subquery, .. })
        | Expr::SetComparison(SetComparison { subquery, .. }) => Some(subquery),
        _ => None,
    }
}

/// Returns all columns that an expression reads, including the outer columns of subqueries.
pub fn columns_read(expr: &Expr) -> HashSet<Column> {
    collect_columns(expr, |_| false)
}

/// Returns the columns that an expression may vary with: not those that only `stop_gradient` reads.
pub fn columns_followed(expr: &Expr) -> HashSet<Column> {
    collect_columns(expr, |part| stop_gradient_argument(part).is_some())
}

fn collect_columns(expr: &Expr, is_left_out: impl Fn(&Expr) -> bool) -> HashSet<Column> {
    let mut columns = HashSet::new();
    let visited = expr.apply(|part| {
        if is_left_out(part) {
            return Ok(TreeNodeRecursion::Jump);
        }
        if let Expr::Column(column) | Expr::OuterReferenceColumn(_, column) = part {
            columns.insert(column.clone());
        } else if let Some(subquery) = subquery_of(part) {
            columns.extend(subquery.outer_ref_columns.iter().flat_map(columns_read));
        }
        Ok(TreeNodeRecursion::Continue)
    });
    debug_assert!(visited.is_ok(), "the closure never fails");
    columns
}
