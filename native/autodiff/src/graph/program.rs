//! Nodes as one expression in which each stands once, and back.
//!
//! `x * sin(y) + cos(sin(y))` as a program is the list `sin(y)`, `x * #0`, `cos(#0)`, `#1 + #2`, and in the end what it gives,
//! `#3`. An expression of DataFusion would have `sin(y)` twice, and the derivative of a long chain a square of it.

use arrow::datatypes::Field;
use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{Column, Result, TableReference, internal_datafusion_err, internal_err};
use datafusion_expr::Expr;
use datafusion_expr::expr::ScalarFunction;
use std::collections::HashMap;
use std::sync::Arc;

use super::intern::{Graph, Node, NodeId};
use crate::vocabulary::functions::function;

/// No table has this name: it stands in the place of one in a reference to a line.
const LINE_PREFIX: &str = "∂";

/// Writes nodes as a program.
pub fn to_program(graph: &Graph, roots: &[NodeId]) -> Result<Expr> {
    let mut lines = vec![];
    let mut written: HashMap<NodeId, Expr> = HashMap::new();
    for id in graph.reachable_from(roots) {
        let node = graph.node(id);
        if node.children.is_empty() {
            written.insert(id, node.shape.clone());
            continue;
        }
        let mut children = node.children.iter().filter_map(|child| written.get(child));
        let line = node.shape.clone().map_children(|_| match children.next() {
            Some(child) => Ok(Transformed::yes(child.clone())),
            None => internal_err!("{} lacks an operand", node.shape),
        })?;
        written.insert(id, reference(lines.len(), node));
        lines.push(line.data);
    }
    for root in roots {
        let root = written.get(root).cloned();
        lines.push(root.ok_or_else(|| internal_datafusion_err!("a program lacks its result"))?);
    }
    Ok(Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(function("struct")?), lines)))
}

/// Creates a reference to a line, with its type.
fn reference(line: usize, node: &Node) -> Expr {
    let field = Field::new("", node.field.data_type().clone(), node.field.is_nullable());
    Expr::OuterReferenceColumn(Arc::new(field), Column::new(Some(TableReference::bare(LINE_PREFIX)), line.to_string()))
}

/// Returns the line that an expression refers to.
pub fn parse_reference(expr: &Expr) -> Option<usize> {
    match expr {
        Expr::OuterReferenceColumn(_, Column { relation: Some(TableReference::Bare { table }), name, .. })
            if table.as_ref() == LINE_PREFIX =>
        {
            name.parse().ok()
        }
        _ => None,
    }
}
