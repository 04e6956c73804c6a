//! The table of sub-expressions that both sides build: every distinct sub-expression is one node.
//!
//! A node is a *shape*, an expression whose children are replaced by numbered placeholders, over the entries of its
//! children, which precede it. For `x + x * y`:
//!
//! | entry | shape | children |
//! |---|---|---|
//! | 0 | `x` | |
//! | 1 | `y` | |
//! | 2 | `#0 * #1` | 0, 1 |
//! | 3 | `#0 + #1` | 0, 2 |

pub(crate) mod expand;
pub(crate) mod flatten;
pub(crate) mod message;
pub(crate) mod opaque;
pub(crate) mod shallow;

use std::collections::HashMap;

use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{Column, Result};
use datafusion_expr::Expr;

use crate::wire::error::malformed;

/// A sub-expression. One that is kept whole is a shape without children, whatever it contains.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Node {
    /// The expression with placeholders for its children.
    pub shape: Expr,
    /// The entries of the children.
    pub children: Vec<u32>,
}

/// The distinct nodes, each after its children.
#[derive(Debug, Default)]
pub(crate) struct NodeTable {
    nodes: Vec<Node>,
    entries: HashMap<Node, u32>,
}

impl NodeTable {
    /// Returns all nodes.
    pub(crate) fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Returns the node of an entry, which the other side may have invented.
    pub(crate) fn get(&self, entry: u32) -> Result<&Node> {
        usize::try_from(entry)
            .ok()
            .and_then(|entry| self.nodes.get(entry))
            .ok_or_else(|| malformed(format_args!("there is no entry {entry}")))
    }

    /// Returns the entry of an equal node, if there is one that may be shared.
    pub(crate) fn find(&self, node: &Node) -> Option<u32> {
        self.entries.get(node).copied()
    }

    /// Appends a node; `shared` says whether an equal one may later be taken for it.
    pub(crate) fn push(&mut self, node: Node, shared: bool) -> Result<u32> {
        let entry = self.next_entry()?;
        if shared {
            self.entries.entry(node.clone()).or_insert(entry);
        }
        self.nodes.push(node);
        Ok(entry)
    }

    /// Returns the entry of the next node.
    pub(crate) fn next_entry(&self) -> Result<u32> {
        u32::try_from(self.nodes.len()).map_err(malformed)
    }
}

/// Creates the placeholder of a child.
pub(crate) fn placeholder(number: impl ToString) -> Expr {
    Expr::Column(Column::new_unqualified(number.to_string()))
}

/// Creates the placeholders of the first `count` children.
pub(crate) fn placeholders(count: usize) -> Vec<Expr> {
    (0..count).map(placeholder).collect()
}

/// Splits an expression into its shape and its children.
pub(crate) fn split(expr: Expr) -> Result<(Expr, Vec<Expr>)> {
    let mut children = vec![];
    let shape = expr.map_children(|child| {
        children.push(child);
        Ok(Transformed::yes(placeholder(children.len() - 1)))
    })?;
    Ok((shape.data, children))
}

/// Joins a shape with its children.
pub(crate) fn join(shape: Expr, children: impl IntoIterator<Item = Expr>) -> Result<Expr> {
    let mut children = children.into_iter();
    let expr = shape.map_children(|_| match children.next() {
        Some(child) => Ok(Transformed::yes(child)),
        None => Err(malformed("a node lacks a child")),
    })?;
    Ok(expr.data)
}
