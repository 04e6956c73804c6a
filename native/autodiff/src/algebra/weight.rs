//! The cost of an expression, by which its form is chosen.

use datafusion_expr::{Expr, Operator};
use std::collections::HashSet;

use super::powers::as_written_power;
use crate::graph::{Graph, NodeId};
use crate::table::Algebraic;

/// Larger expressions are left as they are.
pub const MAX_WEIGHED: usize = 200;

/// Returns the first of the cheapest; the first of all if that one is too large to be weighed.
pub fn pick_cheapest(graph: &Graph, candidates: &[NodeId]) -> NodeId {
    let mut best = candidates[0];
    let Some(mut least) = cost(graph, best) else { return best };
    for candidate in &candidates[1..] {
        if let Some(cost) = cost(graph, *candidate).filter(|cost| *cost < least) {
            (best, least) = (*candidate, cost);
        }
    }
    best
}

/// Returns the number of operations in a sum of products, and how many of them the primal does not have. Returns `None` if there are too
/// many to weigh.
pub fn cost(graph: &Graph, root: NodeId) -> Option<(usize, usize)> {
    let mut seen = HashSet::from([root]);
    let mut open = vec![root];
    let mut cost = (0, 0);
    while let Some(id) = open.pop() {
        let node = graph.node(id);
        let (operations, arithmetic) = match &node.shape {
            Expr::Literal(..) | Expr::Column(_) => continue,
            Expr::Negative(_) => (1, true),
            Expr::BinaryExpr(binary) => {
                let arithmetic = [Operator::Plus, Operator::Minus, Operator::Multiply, Operator::Divide];
                (1, arithmetic.contains(&binary.op))
            }
            // With the condition.
            Expr::Case(_) if as_written_power(graph, id).is_some() => (1, true),
            _ => node.line().map_or((1, false), |line| {
                // Beside its value the query computes a power of its own anyway.
                let another = line.algebraic == Some(Algebraic::Power) && !graph.is_primal(id);
                (if another { line.cost + line.cost / 2 } else { line.cost }, line.algebraic.is_some())
            }),
        };
        cost.0 += operations;
        cost.1 += if graph.is_primal(id) { 0 } else { operations };
        if arithmetic {
            open.extend(node.children.iter().filter(|child| seen.insert(**child)));
        }
        if seen.len() > MAX_WEIGHED {
            return None;
        }
    }
    Some(cost)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::import;
    use crate::vocabulary::functions::function;
    use crate::vocabulary::testing::columns;
    use datafusion_common::Result;
    use datafusion_expr::{col, lit};

    #[test]
    fn what_the_primal_has_costs_nothing_more() -> Result<()> {
        let schema = columns()?;
        let mut graph = Graph::new(&schema);
        let square = import(&mut graph, &(col("x") * col("x")))?;
        graph.end_primal();
        let cube = import(&mut graph, &(col("x") * col("x") * col("x")))?;
        let power = import(&mut graph, &function("power")?.call(vec![col("x"), lit(3.0)]))?;
        assert_eq!((cost(&graph, square), cost(&graph, cube)), (Some((1, 0)), Some((2, 1))));
        assert_eq!(pick_cheapest(&graph, &[power, cube]), cube);
        assert_eq!(pick_cheapest(&graph, &[cube, cube]), cube);
        Ok(())
    }

    #[test]
    fn what_is_large_is_not_weighed() -> Result<()> {
        let schema = columns()?;
        let mut graph = Graph::new(&schema);
        let large = (0..MAX_WEIGHED).fold(col("x"), |sum, number| sum * lit(number as f64 + 0.5));
        let (large, small) = (import(&mut graph, &large)?, import(&mut graph, &col("y"))?);
        assert_eq!(cost(&graph, large), None);
        assert_eq!((pick_cheapest(&graph, &[large, small]), pick_cheapest(&graph, &[small, large])), (large, small));
        Ok(())
    }
}
