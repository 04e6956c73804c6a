//! The columns that an expression reads.

use datafusion_common::Column;
use datafusion_common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion_expr::Expr;
use datafusion_expr::expr::{Exists, InSubquery, SetComparison};
use std::collections::HashSet;

/// Whether an expression reads columns in a way its children do not show, and is kept whole.
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

/// All columns that an expression reads, those that a subquery takes from around it included.
pub fn columns_read(expr: &Expr) -> HashSet<Column> {
    let mut columns = HashSet::new();
    let visited = expr.apply(|part| {
        match part {
            Expr::Column(column) | Expr::OuterReferenceColumn(_, column) => {
                columns.insert(column.clone());
            }
            Expr::ScalarSubquery(subquery)
            | Expr::Exists(Exists { subquery, .. })
            | Expr::InSubquery(InSubquery { subquery, .. })
            | Expr::SetComparison(SetComparison { subquery, .. }) => {
                columns.extend(subquery.outer_ref_columns.iter().flat_map(columns_read));
            }
            _ => {}
        }
        Ok(TreeNodeRecursion::Continue)
    });
    debug_assert!(visited.is_ok(), "the closure never fails");
    columns
}
