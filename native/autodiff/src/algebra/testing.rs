//! Nodes as unit tests compare them.

use datafusion_common::Result;

use crate::graph::{Graph, NodeId, export};
use crate::vocabulary::messages::abbreviate;

/// Shows a node in SQL.
pub fn show(graph: &Graph, id: NodeId) -> Result<String> {
    Ok(abbreviate(&export(graph, id)?))
}
