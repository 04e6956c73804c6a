//! Nodes back into expressions.

use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{Result, internal_datafusion_err, plan_err};
use datafusion_expr::Expr;

use super::intern::{Graph, NodeId};

/// The largest expression that is written out. DataFusion takes minutes to plan what is larger.
const MOST_TERMS: u64 = 200_000;

/// The expression of a node. What the graph shares is written out wherever it is used.
pub fn export(graph: &Graph, root: NodeId) -> Result<Expr> {
    let order = graph.reachable(root);
    check_size(graph, root, &order)?;
    let mut uses = vec![0_usize; root.0 + 1];
    uses[root.0] = 1;
    for child in order.iter().flat_map(|id| &graph.node(*id).children) {
        uses[child.0] += 1;
    }
    let mut exprs: Vec<Option<Expr>> = vec![None; root.0 + 1];
    for id in order {
        let node = graph.node(id);
        let mut children = node.children.iter();
        let expr = if node.children.is_empty() {
            node.shape.clone()
        } else {
            let exported = node.shape.clone().map_children(|_| {
                let child = children.next().and_then(|child| {
                    uses[child.0] -= 1;
                    // The last use takes the expression, so that a chain is not copied at every link.
                    if uses[child.0] == 0 { exprs[child.0].take() } else { exprs[child.0].clone() }
                });
                child.map(Transformed::yes).ok_or_else(|| internal_datafusion_err!("{} lacks an operand", node.shape))
            })?;
            exported.data
        };
        exprs[id.0] = Some(expr);
    }
    exprs.pop().flatten().ok_or_else(|| internal_datafusion_err!("the derivative is empty"))
}

/// The error for an expression that is too large once what its parts share is written out.
fn check_size(graph: &Graph, root: NodeId, order: &[NodeId]) -> Result<()> {
    let mut sizes = vec![0_u64; root.0 + 1];
    for id in order {
        let children = graph.node(*id).children.iter();
        sizes[id.0] = children.fold(1, |size, child| size.saturating_add(sizes[child.0]));
    }
    if sizes[root.0] <= MOST_TERMS {
        return Ok(());
    }
    plan_err!(
        "a derivative of {} terms is more than can be planned; at most {MOST_TERMS} are allowed. Compute parts of the \
         expression in a subquery or CTE, or take a lower order",
        sizes[root.0]
    )
}
