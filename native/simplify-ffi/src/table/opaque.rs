//! Opaque expressions, which the provider does not see, and the columns they read.

use arrow::datatypes::FieldRef;
use datafusion_common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion_common::{Column, DFSchema, Result};
use datafusion_expr::expr::{Exists, InSubquery, SetComparison};
use datafusion_expr::{Expr, LogicalPlan, Subquery, Volatility};

/// Returns whether expressions of this kind are always opaque.
#[expect(deprecated)]
pub(crate) fn is_opaque(expr: &Expr) -> bool {
    subquery(expr).is_some()
        || matches!(
            expr,
            Expr::AggregateFunction(_)
                | Expr::WindowFunction(_)
                | Expr::HigherOrderFunction(_)
                | Expr::Lambda(_)
                | Expr::LambdaVariable(_)
                | Expr::ScalarVariable(_, _)
                | Expr::GroupingSet(_)
                | Expr::Wildcard { .. }
        )
}

/// Collects the columns of the input and the outer references that `expr` reads, each once.
///
/// A subquery reads, by its outer references, columns of the input or of a query further out.
pub(crate) fn read_columns(expr: &Expr, schema: &DFSchema) -> Result<Vec<Expr>> {
    let mut reads = vec![];
    expr.apply(|expr| {
        match expr {
            Expr::Column(_) | Expr::OuterReferenceColumn(_, _) => reads.push(expr.clone()),
            _ => {}
        }
        if let Some(subquery) = subquery(expr) {
            for (field, column) in outer_references(&subquery.subquery)? {
                reads.push(if schema.has_column(&column) {
                    Expr::Column(column)
                } else {
                    Expr::OuterReferenceColumn(field, column)
                });
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    let mut distinct = vec![];
    for read in reads {
        if !distinct.contains(&read) {
            distinct.push(read);
        }
    }
    Ok(distinct)
}

/// Returns volatile if anything in the expression or in its subqueries is.
pub(crate) fn volatility(expr: &Expr) -> Result<Volatility> {
    Ok(if is_volatile(expr)? { Volatility::Volatile } else { Volatility::Stable })
}

fn is_volatile(expr: &Expr) -> Result<bool> {
    expr.exists(|expr| {
        let Some(subquery) = subquery(expr) else {
            return Ok(expr.is_volatile_node());
        };
        let mut volatile = false;
        subquery.subquery.apply_with_subqueries(|plan| {
            plan.apply_expressions(|expr| {
                volatile |= expr.is_volatile();
                Ok(TreeNodeRecursion::Continue)
            })
        })?;
        Ok(volatile)
    })
}

fn subquery(expr: &Expr) -> Option<&Subquery> {
    match expr {
        Expr::ScalarSubquery(subquery)
        | Expr::Exists(Exists { subquery, .. })
        | Expr::InSubquery(InSubquery { subquery, .. })
        | Expr::SetComparison(SetComparison { subquery, .. }) => Some(subquery),
        _ => None,
    }
}

/// Collects the references of a plan to queries around it, without those of its subqueries to the plan itself.
fn outer_references(plan: &LogicalPlan) -> Result<Vec<(FieldRef, Column)>> {
    let mut references = vec![];
    plan.apply(|node| {
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                if let Expr::OuterReferenceColumn(field, column) = expr {
                    references.push((field.clone(), column.clone()));
                }
                if let Some(subquery) = subquery(expr) {
                    let inner = outer_references(&subquery.subquery)?;
                    references.extend(
                        inner
                            .into_iter()
                            .filter(|(_, column)| !node.inputs().iter().any(|input| input.schema().has_column(column))),
                    );
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(references)
}
