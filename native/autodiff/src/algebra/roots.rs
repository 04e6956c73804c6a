//! Square roots in derivatives, which are NaN where their argument is negative.
//!
//! So they are in DataFusion 54. DataFusion 55 ends the query there, though the function that is differentiated may have a value:
//! `power(x, 1.5)` and `asin(x)` are NaN outside of their domain.

use datafusion_common::Result;
use datafusion_expr::ScalarUDF;
#[cfg(feature = "datafusion-55")]
use datafusion_expr::{Expr, Operator};
use std::sync::Arc;

use crate::graph::{Graph, NodeId};

/// Builds the square root of a node, by the function that computes it.
#[cfg(not(feature = "datafusion-55"))]
pub fn square_root(graph: &mut Graph, sqrt: &Arc<ScalarUDF>, of: NodeId) -> Result<NodeId> {
    graph.call(sqrt, &[of])
}

/// Builds the square root of a node: `CASE WHEN u < 0 THEN NaN ELSE sqrt(u) END`, or `sqrt(u)` alone if `u` is known not to be negative.
///
/// The comparison takes a fraction of what `power(u, 0.5)` takes, which is NaN for negative arguments as well (`bench/forms.py --powers`). So
/// would be a square root of our own, but a call that crosses the boundary of a library converts the session's options for each batch.
#[cfg(feature = "datafusion-55")]
pub fn square_root(graph: &mut Graph, sqrt: &Arc<ScalarUDF>, of: NodeId) -> Result<NodeId> {
    let root = graph.call(sqrt, &[of])?;
    if super::bounds::is_not_negative(graph, of) {
        return Ok(root);
    }
    let zero = graph.number(0.0)?;
    let is_negative = graph.binary(of, Operator::Lt, zero)?;
    let nan = graph.number(f64::NAN)?;
    graph.case(&[(is_negative, nan)], Some(root))
}

/// Returns the node of which a node is the square root as `square_root` builds it, for derivatives of higher order: the branch that is NaN
/// has no derivative of its own, which would be 0.
#[cfg(not(feature = "datafusion-55"))]
pub fn as_guarded_root(_: &Graph, _: NodeId) -> Option<NodeId> {
    None
}

/// Returns the node of which a node is the square root as `square_root` builds it, for derivatives of higher order: the branch that is NaN
/// has no derivative of its own, which would be 0.
#[cfg(feature = "datafusion-55")]
pub fn as_guarded_root(graph: &Graph, id: NodeId) -> Option<NodeId> {
    let node = graph.node(id);
    let (Expr::Case(_), &[condition, nan, root]) = (&node.shape, node.children.as_slice()) else {
        return None;
    };
    let (of, zero) = graph.as_binary(condition, Operator::Lt)?;
    let called = graph.node(root);
    let is_root = matches!(&called.shape, Expr::ScalarFunction(call) if call.func.name() == "sqrt");
    let is_guarded = graph.is_zero(zero) && graph.as_number(nan).is_some_and(f64::is_nan);
    (is_root && is_guarded && called.children == [of]).then_some(of)
}
