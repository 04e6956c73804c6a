//! The nullability of recursive queries.
//!
//! DataFusion 54 takes it from the static term alone, although later iterations may be NULL where the first rows are not. Then
//! plans fail (`Physical input schema should be the same`, `declared as non-nullable but contains null values`), and what is
//! decided by the nullability is decided wrongly. It is <https://github.com/apache/datafusion/issues/22034>, which later versions have
//! mended: with them, what is here goes.

use datafusion_common::Result;
use datafusion_common::tree_node::Transformed;
use datafusion_expr::{Expr, LogicalPlan, Projection, RecursiveQuery};
use datafusion_optimizer::{OptimizerConfig, OptimizerRule};
use std::collections::BTreeSet;
use std::sync::Arc;

use super::pruning::keeps_recursive_columns;
use crate::plan::recursion::WorkTable;
use crate::plan::rewrite::rewrite_up;
use crate::vocabulary::expressions::unaliased;
use crate::vocabulary::identity::{is_equal, occurrences};
use crate::vocabulary::names::columns;
use crate::vocabulary::nodes::any_node;
use crate::vocabulary::nullable_wrapper::{nullable, unwrap_nullable};

/// When the static term can be trusted to be nullable where it says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Static {
    /// Always.
    Settled,
    /// Not before its derivatives have been written out, which may turn out never to be NULL.
    Derived,
}

/// The last of the rules of an optimizer: columns of recursive queries are nullable if either term is, in a plan whose recursive
/// queries are kept.
///
/// What other rules do to the terms may change their nullability. They draw out the test of
/// `CASE WHEN x IS NOT NULL THEN x ELSE 0 END` if another column has the same test, as a tangent has, and DataFusion 54 no longer
/// knows then why the value is never NULL.
///
/// By now a plan has no calls any more. What is above its recursive queries tells that it had some.
#[derive(Debug, Default)]
pub struct NullableRecursiveColumns;

impl OptimizerRule for NullableRecursiveColumns {
    fn name(&self) -> &str {
        "nullable_recursive_columns"
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(&self, plan: LogicalPlan, _config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        if any_node(&plan, |node| Ok(keeps_recursive_columns(node)))? {
            nullable_by_either_term(plan, Static::Settled)
        } else {
            Ok(Transformed::no(plan))
        }
    }
}

/// Returns the plan with columns of recursive queries nullable if either term is.
///
/// ```text
/// RecursiveQuery: is_distinct=false
///   Projection: 1 AS s, 1.0 AS x                                                     x is NOT NULL
///     EmptyRelation: rows=1
///   Projection: r.s + 1, CASE WHEN r.s < 2 THEN 2.0 * r.x END                        NULL in the third row
///     TableScan: r
/// ```
///
/// becomes
///
/// ```text
/// RecursiveQuery: is_distinct=false
///   Projection: s, CASE WHEN random() >= 0 THEN x END AS x                           nullable
///     Projection: 1 AS s, 1.0 AS x
///       EmptyRelation: rows=1
///   Projection: r.s + 1, CASE WHEN r.s < 2 THEN 2.0 * r.x END
///     TableScan: r                                                                   x is nullable here too
/// ```
pub fn nullable_by_either_term(plan: LogicalPlan, trust: Static) -> Result<Transformed<LogicalPlan>> {
    // Without such a query nothing is copied.
    let differs =
        |node: &LogicalPlan| matches!(node, LogicalPlan::RecursiveQuery(query) if !differing(query, trust).is_empty());
    if !any_node(&plan, |node| Ok(differs(node)))? {
        return Ok(Transformed::no(plan));
    }
    // Copies of one query stay copies of one, with one work table.
    let mut known: Vec<(LogicalPlan, LogicalPlan)> = vec![];
    rewrite_up(plan, &mut |node| {
        let LogicalPlan::RecursiveQuery(query) = &node else { return Ok(Transformed::no(node)) };
        let is_copy = |one: &LogicalPlan| is_equal(one, &node) && occurrences(one) == occurrences(&node);
        if let Some((_, widened)) = known.iter().find(|(one, _)| is_copy(one)) {
            return Ok(Transformed::yes(widened.clone()));
        }
        let widened = widen(query.clone(), trust)?.update_data(LogicalPlan::RecursiveQuery);
        if widened.transformed {
            known.push((node, widened.data.clone()));
        }
        Ok(widened)
    })
}

/// Returns the columns that later iterations may make NULL, and the static term may not.
fn differing(query: &RecursiveQuery, trust: Static) -> BTreeSet<usize> {
    let [first, later] = [&query.static_term, &query.recursive_term].map(|term| term.schema());
    let trusted = |index: usize| match trust {
        Static::Settled => first.field(index).is_nullable(),
        Static::Derived => is_marked(&query.static_term, index),
    };
    (0..first.fields().len().min(later.fields().len()))
        .filter(|index| later.field(*index).is_nullable() && !trusted(*index))
        .collect()
}

/// Returns whether a column is wrapped as nullable, here or below.
fn is_marked(plan: &LogicalPlan, index: usize) -> bool {
    let LogicalPlan::Projection(projection) = plan else { return false };
    match projection.expr.get(index).map(unaliased) {
        Some(Expr::Column(column)) => {
            let below = projection.input.schema().maybe_index_of_column(column);
            below.is_some_and(|index| is_marked(&projection.input, index))
        }
        expr => expr.is_some_and(|expr| unwrap_nullable(expr).is_some()),
    }
}

/// Returns the query with columns nullable that differ. One column being nullable may make others so, through the work table.
fn widen(mut query: RecursiveQuery, trust: Static) -> Result<Transformed<RecursiveQuery>> {
    let static_term = Arc::clone(&query.static_term);
    let mut widened = BTreeSet::new();
    loop {
        let differing = differing(&query, trust);
        if differing.is_empty() {
            return Ok(Transformed::new_transformed(query, !widened.is_empty()));
        }
        widened.extend(differing);
        let mut exprs = columns(static_term.schema());
        for index in &widened {
            exprs[*index] = nullable(exprs[*index].clone())?;
        }
        let first = Projection::try_new(exprs, Arc::clone(&static_term))?;
        let table = WorkTable::with_schema(&query, Arc::clone(first.schema.inner()));
        let later = rewrite_up(Arc::unwrap_or_clone(query.recursive_term), &mut |node| match node {
            LogicalPlan::TableScan(scan) if table.is_read_by(&scan) => {
                Ok(Transformed::yes(LogicalPlan::TableScan(table.rescan(scan, [])?)))
            }
            other => Ok(Transformed::no(other)),
        })?;
        query.static_term = Arc::new(LogicalPlan::Projection(first));
        query.recursive_term = Arc::new(later.data);
    }
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionContext;
    use datafusion_common::Result;

    /// <https://github.com/apache/datafusion/issues/22034>
    #[tokio::test]
    async fn datafusion_takes_nullability_from_the_static_term_still() -> Result<()> {
        let sql = "WITH RECURSIVE r AS (
                     SELECT 1 AS s, 1.0 AS x UNION ALL SELECT s + 1, CASE WHEN s < 2 THEN 2.0 * x END FROM r WHERE s < 3)
                   SELECT s, x FROM r";
        let frame = SessionContext::new().sql(sql).await?;
        let is_nullable = frame.schema().field_with_unqualified_name("x")?.is_nullable();
        assert!(!is_nullable, "the fault is gone: take this file away, and what it is called by");
        Ok(())
    }
}
