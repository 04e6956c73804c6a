//! Which expressions are finite wherever the columns they read are, overflow aside.

use datafusion_expr::{Expr, Operator};
use std::collections::HashMap;

use super::construct::branches;
use super::{Dag, NodeId};
use crate::vocabulary::functions::is_of_datafusion;

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
    /// Whether the derivatives are finite, too.
    smooth: bool,
    sign: Sign,
}

impl Dag<'_> {
    /// Whether a node is finite wherever its columns are, overflow aside.
    pub fn is_finite(&self, root: NodeId) -> bool {
        self.bounds(root).is_some_and(|bounds| bounds.finite)
    }

    /// Whether a node and its derivatives are finite wherever its columns are, overflow aside.
    pub fn is_smooth(&self, root: NodeId) -> bool {
        self.bounds(root).is_some_and(|bounds| bounds.smooth)
    }

    fn bounds(&self, root: NodeId) -> Option<Bounds> {
        let mut known = HashMap::new();
        for id in self.reachable(root) {
            let bounds = self.bounds_over(id, &known);
            known.insert(id, bounds);
        }
        known.get(&root).copied()
    }

    fn bounds_over(&self, id: NodeId, known: &HashMap<NodeId, Bounds>) -> Bounds {
        use Sign::{Any, NotNegative, Positive};
        let node = self.node(id);
        let of: Vec<Bounds> = match &node.shape {
            Expr::Case(case) => {
                branches(case).iter().filter_map(|value| known.get(&node.children[*value]).copied()).collect()
            }
            _ => node.children.iter().filter_map(|child| known.get(child).copied()).collect(),
        };
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
            Expr::Cast(_) | Expr::Case(_) => (finite, least),
            Expr::BinaryExpr(binary) => match binary.op {
                // Of two that are not negative, one that is positive makes the sum so.
                Operator::Plus if least >= NotNegative => (finite, most),
                Operator::Plus | Operator::Minus => (finite, Any),
                Operator::Multiply if square => (finite, least.max(NotNegative)),
                Operator::Multiply => (finite, least),
                Operator::Divide => (finite && of.last().is_some_and(|divisor| divisor.sign == Positive), least),
                _ => (false, Any),
            },
            Expr::ScalarFunction(call) if is_of_datafusion(&call.func) => match call.func.name() {
                "exp" | "cosh" => (finite, Positive),
                "abs" => (finite, NotNegative),
                "sqrt" => (finite && least >= NotNegative, least),
                "sin" | "cos" | "tanh" | "atan" | "sinh" | "asinh" | "signum" | "cbrt" => (finite, Any),
                "greatest" | "least" => (finite, least),
                _ => (false, Any),
            },
            _ => (false, Any),
        };
        // The roots are steep at 0.
        let steep = match &node.shape {
            Expr::ScalarFunction(call) => match call.func.name() {
                "sqrt" => sign != Positive,
                "cbrt" => true,
                _ => false,
            },
            _ => false,
        };
        let smooth = finite && !steep && of.iter().all(|bounds| bounds.smooth);
        Bounds { finite, smooth, sign }
    }
}
