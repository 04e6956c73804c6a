//! Export of nodes as expressions.

use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{Result, internal_datafusion_err, plan_err};
use datafusion_expr::Expr;

use super::intern::{Graph, NodeId};

/// The maximum size of an exported expression. DataFusion takes minutes to plan larger ones.
const MAX_TERMS: u64 = 200_000;

/// Exports a node. What the graph shares is repeated wherever it is used.
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
                    // The last use takes the expression, so a chain is not copied at every link.
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

/// Refuses an expression that is too large once shared parts are repeated.
fn check_size(graph: &Graph, root: NodeId, order: &[NodeId]) -> Result<()> {
    let mut sizes = vec![0_u64; root.0 + 1];
    for id in order {
        let children = graph.node(*id).children.iter();
        sizes[id.0] = children.fold(1, |size, child| size.saturating_add(sizes[child.0]));
    }
    if sizes[root.0] <= MAX_TERMS {
        return Ok(());
    }
    plan_err!(
        "a derivative of {} terms is more than can be planned; at most {MAX_TERMS} are allowed. Compute parts of the \
         expression in a subquery or CTE, or take a lower order",
        sizes[root.0]
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::import::import;
    use crate::vocabulary::testing::columns;
    use datafusion_expr::{cast, col, is_null, lit, when};

    #[test]
    fn an_expression_comes_back_as_it_was() -> Result<()> {
        let schema = columns()?;
        let mut graph = Graph::new(&schema);
        let sum = col("x") + col("y");
        for expr in [
            col("n"),
            sum.clone() * sum,
            when(is_null(col("n")), lit(0.0)).otherwise(col("n") * lit(2.0))?,
            cast(col("i"), arrow::datatypes::DataType::Float64) - col("x"),
        ] {
            let id = import(&mut graph, &expr)?;
            assert_eq!(export(&graph, id)?, expr);
        }
        Ok(())
    }

    #[test]
    fn what_is_shared_is_one_node() -> Result<()> {
        let schema = columns()?;
        let mut graph = Graph::new(&schema);
        let shared = (col("x") + col("y")) * (col("x") + col("y"));
        let id = import(&mut graph, &shared)?;
        assert_eq!(graph.reachable(id).len(), 4);
        assert_eq!(import(&mut graph, &shared.alias("named"))?, id);
        Ok(())
    }

    #[test]
    fn what_is_too_large_written_out_is_refused() -> Result<()> {
        let schema = columns()?;
        let mut graph = Graph::new(&schema);
        let mut id = import(&mut graph, &col("x"))?;
        for _ in 0..20 {
            id = graph.binary(id, datafusion_expr::Operator::Plus, id)?;
        }
        let refused = export(&graph, id).map_err(|error| error.to_string());
        assert!(refused.is_err_and(|error| error.contains("a derivative of 2097151 terms")));
        Ok(())
    }
}
