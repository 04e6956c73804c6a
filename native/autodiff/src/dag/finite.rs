//! Which expressions are finite wherever the columns they read are, overflow aside.

use datafusion_expr::{Expr, Operator};
use std::collections::HashMap;

use super::{Dag, NodeId};

/// What is known of a value without looking at the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Sign {
    Any,
    NotNegative,
    Positive,
}

#[derive(Debug, Clone, Copy)]
struct Bounds {
    finite: bool,
    sign: Sign,
}

impl Dag<'_> {
    /// Whether a node is finite wherever its columns are, overflow aside.
    pub fn is_finite(&self, root: NodeId) -> bool {
        let mut known = HashMap::new();
        for id in self.reachable(root) {
            let bounds = self.bounds(id, &known);
            known.insert(id, bounds);
        }
        known.get(&root).is_some_and(|bounds| bounds.finite)
    }

    fn bounds(&self, id: NodeId, known: &HashMap<NodeId, Bounds>) -> Bounds {
        use Sign::{Any, NotNegative, Positive};
        let node = self.node(id);
        let of: Vec<Bounds> = node.children.iter().filter_map(|child| known.get(child).copied()).collect();
        let finite = of.iter().all(|bounds| bounds.finite);
        let least = of.iter().map(|bounds| bounds.sign).min().unwrap_or(Any);
        let most = of.iter().map(|bounds| bounds.sign).max().unwrap_or(Any);
        let square = matches!(node.children.as_slice(), [a, b] if a == b);
        let (finite, sign) = match &node.shape {
            Expr::Column(_) | Expr::OuterReferenceColumn(..) => (true, Any),
            Expr::Literal(..) => match self.as_number(id) {
                Some(value) if value > 0.0 => (value.is_finite(), Positive),
                Some(0.0) => (true, NotNegative),
                other => (other.is_some_and(f64::is_finite), Any),
            },
            Expr::Negative(_) => (finite, Any),
            Expr::Cast(_) => (finite, least),
            Expr::BinaryExpr(binary) => match binary.op {
                // Of two that are not negative, one that is positive makes the sum so.
                Operator::Plus if least >= NotNegative => (finite, most),
                Operator::Plus | Operator::Minus => (finite, Any),
                Operator::Multiply if square => (finite, least.max(NotNegative)),
                Operator::Multiply => (finite, least),
                Operator::Divide => (finite && of.last().is_some_and(|divisor| divisor.sign == Positive), least),
                _ => (false, Any),
            },
            Expr::ScalarFunction(call) => match call.func.name() {
                "exp" | "cosh" => (finite, Positive),
                "abs" | "sqrt" => (finite, NotNegative),
                "sin" | "cos" | "tanh" | "atan" | "sinh" | "asinh" | "signum" | "cbrt" => (finite, Any),
                _ => (false, Any),
            },
            _ => (false, Any),
        };
        Bounds { finite, sign }
    }
}
