//! Bounds of expressions, from the rule table: finiteness, smoothness and sign, overflow aside.

use datafusion_expr::{Expr, Operator};
use std::collections::HashMap;

use crate::graph::{Graph, NodeId, branches};
use crate::table::{Range, Sign};

/// The bounds of a value, whatever the data.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    finite: bool,
    /// Whether the derivatives are finite as well.
    smooth: bool,
    sign: Sign,
}

/// Returns whether a node is finite wherever its columns are, overflow aside.
pub fn is_finite(graph: &Graph, root: NodeId) -> bool {
    bounds(graph, root, true).is_some_and(|bounds| bounds.finite)
}

/// Returns whether a node is finite even if its columns are infinite or NaN.
pub fn is_always_finite(graph: &Graph, root: NodeId) -> bool {
    bounds(graph, root, false).is_some_and(|bounds| bounds.finite)
}

/// Returns whether a node and its derivatives are finite wherever its columns are, overflow aside.
pub fn is_smooth(graph: &Graph, root: NodeId) -> bool {
    bounds(graph, root, true).is_some_and(|bounds| bounds.smooth)
}

/// Returns whether a node is known not to be negative.
#[cfg(feature = "datafusion-55")]
pub fn is_not_negative(graph: &Graph, root: NodeId) -> bool {
    bounds(graph, root, true).is_some_and(|bounds| bounds.sign >= Sign::NotNegative)
}

/// Computes the bounds of a node. `columns` says whether columns are finite.
fn bounds(graph: &Graph, root: NodeId, columns: bool) -> Option<Bounds> {
    let mut known = HashMap::new();
    for id in graph.reachable(root) {
        let bounds = bounds_over(graph, id, &known, columns);
        known.insert(id, bounds);
    }
    known.get(&root).copied()
}

fn bounds_over(graph: &Graph, id: NodeId, known: &HashMap<NodeId, Bounds>, columns: bool) -> Bounds {
    use Sign::{Any, NotNegative, Positive};
    let node = graph.node(id);
    let inputs: Vec<Bounds> = match &node.shape {
        Expr::Case(case) => {
            branches(case).iter().filter_map(|value| known.get(&node.children[*value]).copied()).collect()
        }
        _ => node.children.iter().filter_map(|child| known.get(child).copied()).collect(),
    };
    let all_finite = inputs.iter().all(|bounds| bounds.finite);
    let all_smooth = inputs.iter().all(|bounds| bounds.smooth);
    let least = inputs.iter().map(|bounds| bounds.sign).min().unwrap_or(Any);
    let most = inputs.iter().map(|bounds| bounds.sign).max().unwrap_or(Any);
    let square = matches!(node.children.as_slice(), [a, b] if a == b);
    let (finite, sign) = match &node.shape {
        Expr::Column(_) | Expr::OuterReferenceColumn(..) => (columns, Any),
        Expr::Literal(..) => match graph.as_number(id) {
            Some(value) if value > 0.0 => (value.is_finite(), Positive),
            Some(0.0) => (true, NotNegative),
            other => (other.is_some_and(f64::is_finite), Any),
        },
        Expr::Negative(_) => (all_finite, Any),
        Expr::Cast(_) | Expr::Case(_) => (all_finite, least),
        Expr::BinaryExpr(binary) => match binary.op {
            // A sum of terms that are not negative is positive if one of them is.
            Operator::Plus if least >= NotNegative => (all_finite, most),
            Operator::Plus | Operator::Minus => (all_finite, Any),
            Operator::Multiply if square => (all_finite, least.max(NotNegative)),
            Operator::Multiply => (all_finite, least),
            Operator::Divide => (all_finite && inputs.last().is_some_and(|divisor| divisor.sign == Positive), least),
            _ => (false, Any),
        },
        _ => {
            let Some(line) = node.line() else { return Bounds { finite: false, smooth: false, sign: Any } };
            let fulfilled = |required: Option<Sign>| required.is_some_and(|required| least >= required);
            let sign = match line.range {
                Range::Of(sign) => sign,
                Range::OfInputs => least,
            };
            let finite = all_finite && fulfilled(line.finite);
            return Bounds { finite, smooth: finite && all_smooth && fulfilled(line.smooth), sign };
        }
    };
    Bounds { finite, smooth: finite && all_smooth, sign }
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
    fn what_is_known_to_be_finite_and_smooth() -> Result<()> {
        let call = |name: &str, of: Expr| Ok::<_, datafusion_common::DataFusionError>(function(name)?.call(vec![of]));
        let square = || col("x") * col("x");
        for (expr, finite, smooth) in [
            (col("x"), true, true),
            (lit(f64::INFINITY), false, false),
            (square() + lit(1.0), true, true),
            (col("y") / (square() + lit(1.0)), true, true),
            (col("y") / square(), false, false),
            (col("y") / (col("x") * col("y")), false, false),
            (call("sin", col("x"))?, true, true),
            (call("sqrt", square())?, true, false),
            (call("sqrt", square() + lit(1.0))?, true, true),
            (call("sqrt", col("x"))?, false, false),
            (call("ln", square() + lit(2.0))?, false, false),
        ] {
            let schema = columns()?;
            let mut graph = Graph::new(&schema);
            let id = import(&mut graph, &expr)?;
            assert_eq!((is_finite(&graph, id), is_smooth(&graph, id)), (finite, smooth), "{expr}");
        }
        Ok(())
    }
}
