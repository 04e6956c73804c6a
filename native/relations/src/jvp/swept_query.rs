//! Queries that gradients by row have gone through.

use datafusion_common::tree_node::TreeNode;
use datafusion_common::{Column, Result};
use datafusion_expr::{Expr, LogicalPlan};
use std::cell::RefCell;
use std::collections::HashSet;
use std::mem::discriminant;
use std::sync::Arc;

use crate::shared_relation::SharedRelation;
use crate::vocabulary::identity::{Occurrence, occurrences};
use crate::vocabulary::names::is_added;

/// A query by whose rows a gradient is. The gradient has gone through it, and what it has computed no longer has the nodes of the query.
#[derive(Debug, Clone)]
pub struct SweptQuery {
    /// The numbered rows by which the gradient is.
    pub rows: Arc<SharedRelation>,
    /// The query, which reads these.
    pub query: Arc<LogicalPlan>,
}

impl SweptQuery {
    /// Returns whether the gradient has gone through what computes a column of a node, which is in it no longer, and a plan has the gradient.
    pub fn has_gone_through(&self, (origin, position): (&LogicalPlan, usize), plan: &LogicalPlan) -> Result<bool> {
        let leaves = leaves_behind(origin)?;
        let computes = |node: &LogicalPlan| {
            computes_column(node, origin, position)
                // Where nobody can tell, it may.
                && self.rows.is_read_by(node).unwrap_or(true)
                && leaves_behind(node).map_or(true, |behind| behind == leaves)
        };
        Ok(SharedRelation::any_node_in(&self.query, &computes)? && self.rows.is_read_by(plan)?)
    }
}

/// Returns whether a node may be what computes a column of another, though one of them has further columns by now. What has been added to two
/// copies of a query is called otherwise in each, so that an expression that reads it tells nothing.
fn computes_column(node: &LogicalPlan, other: &LogicalPlan, index: usize) -> bool {
    let column = Column::from(other.schema().qualified_field(index));
    let computing = |plan: &LogicalPlan| {
        plan.expressions().into_iter().find(|expr| {
            let (relation, name) = expr.qualified_name();
            relation == column.relation && name == column.name
        })
    };
    let reads_added = |expr: &Option<Expr>| expr.as_ref().is_some_and(reads_added);
    let (computed, other_computed) = (computing(node), computing(other));
    discriminant(node) == discriminant(other)
        && node.schema().maybe_index_of_column(&column).is_some()
        && (computed == other_computed || reads_added(&computed) && reads_added(&other_computed))
}

/// Returns whether an expression, or a subquery in it, reads what has been added.
fn reads_added(expr: &Expr) -> bool {
    let reads = expr.exists(|part| match part {
        Expr::Column(column) => Ok(is_added(&column.name)),
        Expr::ScalarSubquery(query) => SharedRelation::is_scanned_in(&query.subquery),
        _ => Ok(false),
    });
    // Where nobody can tell, it may.
    reads.unwrap_or(true)
}

/// Returns the leaves of the statement that a plan is computed from, behind the shared relations that it scans.
fn leaves_behind(plan: &LogicalPlan) -> Result<HashSet<Occurrence>> {
    let leaves = RefCell::new(HashSet::new());
    SharedRelation::any_node_in(plan, &|node| {
        if node.inputs().is_empty() && SharedRelation::scanned_by(node).is_none() {
            leaves.borrow_mut().extend(occurrences(node));
        }
        false
    })?;
    Ok(leaves.into_inner())
}
