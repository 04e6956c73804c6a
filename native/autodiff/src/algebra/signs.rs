//! Signs: moved outwards while a derivative is built, and placed where they cost the least at the end.

use datafusion_common::Result;
use datafusion_expr::{Expr, Operator};

use crate::graph::{Graph, NodeId, operand};

/// Builds `-a`.
pub fn negate(graph: &mut Graph, a: NodeId) -> Result<NodeId> {
    if let Some(a) = as_negation(graph, a)? {
        return Ok(a);
    }
    if let Some(value) = graph.as_number(a) {
        return graph.number(-value);
    }
    let a = graph.cast_to_working_type(a)?;
    graph.intern(Expr::Negative(Box::new(operand(0))), vec![a])
}

/// Places the sign of a value where it costs nothing or is shared with other derivatives of the query.
pub fn place_sign(graph: &mut Graph, root: NodeId) -> Result<NodeId> {
    match &graph.node(root).shape {
        Expr::Negative(_) if !graph.is_primal(root) => {
            let positive = graph.node(root).children[0];
            match push_negation(graph, positive, false)? {
                Some(negated) => Ok(negated),
                None => Ok(push_negation(graph, positive, true)?.unwrap_or(root)),
            }
        }
        _ => Ok(root),
    }
}

/// Negates a product by negating one of its factors: one whose negation exists already or costs nothing, or if `leftmost`, the first.
#[recursive::recursive]
fn push_negation(graph: &mut Graph, id: NodeId, leftmost: bool) -> Result<Option<NodeId>> {
    if let Some(value) = graph.as_number(id) {
        return graph.number(-value).map(Some);
    }
    let primal = graph.is_primal(id);
    if let Some(known) = graph.find(Expr::Negative(Box::new(operand(0))), vec![id])
        && graph.is_primal(known)
    {
        return Ok(Some(known));
    }
    let Expr::BinaryExpr(binary) = &graph.node(id).shape else {
        return Ok(None);
    };
    let op = binary.op;
    let (a, b) = (graph.node(id).children[0], graph.node(id).children[1]);
    match op {
        Operator::Minus if !primal => graph.binary(b, Operator::Minus, a).map(Some),
        Operator::Multiply | Operator::Divide if !primal => {
            if let Some(negated) = push_negation(graph, a, leftmost)? {
                return graph.binary(negated, op, b).map(Some);
            }
            if leftmost {
                let negated = negate(graph, a)?;
                return graph.binary(negated, op, b).map(Some);
            }
            match push_negation(graph, b, false)? {
                Some(negated) => graph.binary(a, op, negated).map(Some),
                None => Ok(None),
            }
        }
        _ => Ok(None),
    }
}

/// Returns the operands without their signs, and whether the signs make a minus.
pub fn split_signs(graph: &mut Graph, operands: [NodeId; 2]) -> Result<(bool, [NodeId; 2])> {
    let mut negative = false;
    let mut positive = operands;
    for id in &mut positive {
        if let Some(other) = as_negation(graph, *id)? {
            *id = other;
            negative = !negative;
        }
    }
    Ok((negative, positive))
}

/// Returns `b` if `a` is `-b`, including negative numbers.
pub fn as_negation(graph: &mut Graph, a: NodeId) -> Result<Option<NodeId>> {
    match graph.as_number(a) {
        Some(value) if value < 0.0 => graph.number(-value).map(Some),
        _ => Ok(match graph.node(a).shape {
            Expr::Negative(_) => Some(graph.node(a).children[0]),
            _ => None,
        }),
    }
}

/// Builds `a + b`, as a difference if one of them is negative.
pub fn plain_sum(graph: &mut Graph, a: NodeId, b: NodeId) -> Result<NodeId> {
    match (as_negation(graph, a)?, as_negation(graph, b)?) {
        // -1 - x rather than -(1 + x), which is -0 where x is -1.
        (Some(number), Some(b)) if graph.as_number(number).is_some() => graph.binary(a, Operator::Minus, b),
        (Some(a), Some(number)) if graph.as_number(number).is_some() => graph.binary(b, Operator::Minus, a),
        (Some(a), Some(b)) => {
            let sum = graph.binary(a, Operator::Plus, b)?;
            negate(graph, sum)
        }
        (Some(a), None) => graph.binary(b, Operator::Minus, a),
        (None, Some(b)) => graph.binary(a, Operator::Minus, b),
        (None, None) => graph.binary(a, Operator::Plus, b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algebra::testing::show;
    use crate::graph::import;
    use crate::vocabulary::testing::columns;
    use datafusion_expr::col;

    #[test]
    fn signs_are_drawn_outwards() -> Result<()> {
        let schema = columns()?;
        let mut graph = Graph::new(&schema);
        let (x, y) = (import(&mut graph, &col("x"))?, import(&mut graph, &col("y"))?);
        let (minus_x, minus_y) = (negate(&mut graph, x)?, negate(&mut graph, y)?);
        assert_eq!(negate(&mut graph, minus_x)?, x);
        assert_eq!(split_signs(&mut graph, [minus_x, y])?, (true, [x, y]));
        assert_eq!(split_signs(&mut graph, [minus_x, minus_y])?, (false, [x, y]));
        for (a, b, expected) in
            [(x, y, "x + y"), (x, minus_y, "x - y"), (minus_x, y, "y - x"), (minus_x, minus_y, "-(x + y)")]
        {
            let sum = plain_sum(&mut graph, a, b)?;
            assert_eq!(show(&graph, sum)?, expected);
        }
        let number = graph.number(-1.0)?;
        let sum = plain_sum(&mut graph, number, minus_x)?;
        assert_eq!(show(&graph, sum)?, "-1.0 - x");
        Ok(())
    }

    #[test]
    fn a_sign_is_put_where_it_costs_nothing() -> Result<()> {
        let schema = columns()?;
        let mut graph = Graph::new(&schema);
        let (x, y) = (import(&mut graph, &col("x"))?, import(&mut graph, &col("y"))?);
        let difference = graph.binary(x, Operator::Minus, y)?;
        let product = graph.binary(y, Operator::Multiply, difference)?;
        for (positive, expected) in [(difference, "y - x"), (product, "y * (y - x)")] {
            let negative = negate(&mut graph, positive)?;
            let placed = place_sign(&mut graph, negative)?;
            assert_eq!(show(&graph, placed)?, expected);
        }
        Ok(())
    }
}
