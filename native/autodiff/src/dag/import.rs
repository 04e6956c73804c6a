//! Expressions into the graph.

use datafusion_common::Column;
use datafusion_common::Result;
use datafusion_common::tree_node::{TreeNode, TreeNodeRecursion, TreeNodeVisitor};
use datafusion_expr::Expr;
use datafusion_expr::expr::{Exists, InSubquery, SetComparison};
use std::collections::HashSet;

use super::{Dag, NodeId};

impl Dag<'_> {
    /// The node of a whole expression, an alias being the expression it names.
    pub fn import(&mut self, expr: &Expr) -> Result<NodeId> {
        let mut importer = Importer { dag: self, done: vec![] };
        expr.visit(&mut importer)?;
        let Importer { mut done, .. } = importer;
        done.pop().ok_or_else(|| datafusion_common::internal_datafusion_err!("the expression {expr} was not visited"))
    }

    /// The node of a column. Two spellings of one column of the schema are one node.
    fn import_leaf(&mut self, expr: &Expr) -> Result<NodeId> {
        let index = match expr {
            Expr::Column(column) => self.schema.maybe_index_of_column(column),
            _ => None,
        };
        if let Some(id) = index.and_then(|index| self.columns.get(&index)) {
            return Ok(*id);
        }
        let id = self.intern(expr.clone(), vec![])?;
        if let Some(index) = index {
            self.columns.insert(index, id);
        }
        Ok(id)
    }
}

/// Visits children first; `done` holds the nodes whose parent is still to come.
struct Importer<'d, 'a> {
    dag: &'d mut Dag<'a>,
    done: Vec<NodeId>,
}

impl TreeNodeVisitor<'_> for Importer<'_, '_> {
    type Node = Expr;

    fn f_down(&mut self, expr: &Expr) -> Result<TreeNodeRecursion> {
        Ok(if is_opaque(expr) { TreeNodeRecursion::Jump } else { TreeNodeRecursion::Continue })
    }

    fn f_up(&mut self, expr: &Expr) -> Result<TreeNodeRecursion> {
        if matches!(expr, Expr::Alias(_)) {
            return Ok(TreeNodeRecursion::Continue);
        }
        let id = if is_opaque(expr) {
            self.dag.intern(expr.clone(), vec![])?
        } else {
            let mut count = 0;
            expr.apply_children(|_| {
                count += 1;
                Ok(TreeNodeRecursion::Continue)
            })?;
            if count == 0 {
                self.dag.import_leaf(expr)?
            } else {
                let children = self.done.split_off(self.done.len() - count);
                self.dag.intern_with_children(expr.clone(), children)?
            }
        };
        self.done.push(id);
        Ok(TreeNodeRecursion::Continue)
    }
}

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
