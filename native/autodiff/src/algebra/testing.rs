//! Nodes as unit tests compare them.

use datafusion_common::Result;

use crate::graph::{Graph, NodeId, export};
use crate::vocabulary::messages::abbreviated;

/// A node in SQL.
pub fn shown(graph: &Graph, id: NodeId) -> Result<String> {
    Ok(abbreviated(&export(graph, id)?))
}
