//! Square roots in derivatives, which are NaN where their argument is negative.
//!
//! So they are in DataFusion 54. DataFusion 55 ends the query there, though the function that is differentiated may have a value:
//! `power(x, 1.5)` and `asin(x)` are NaN outside of their domain.

use datafusion_common::Result;
use datafusion_expr::ScalarUDF;
use std::sync::Arc;

use crate::graph::{Graph, NodeId};

/// Builds the square root of a node, by the function that computes it.
#[cfg(not(feature = "datafusion-55"))]
pub fn square_root(graph: &mut Graph, sqrt: &Arc<ScalarUDF>, of: NodeId) -> Result<NodeId> {
    graph.call(sqrt, &[of])
}

/// Builds the square root of a node: by the function that computes it if the argument is known not to be negative, else by `power`, which
/// takes three times as long and is NaN for negative arguments.
#[cfg(feature = "datafusion-55")]
pub fn square_root(graph: &mut Graph, sqrt: &Arc<ScalarUDF>, of: NodeId) -> Result<NodeId> {
    if super::bounds::is_not_negative(graph, of) {
        return graph.call(sqrt, &[of]);
    }
    let half = graph.number(0.5)?;
    graph.call(crate::vocabulary::functions::function("power")?, &[of, half])
}
