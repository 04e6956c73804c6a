//! Which nodes vary with the variables.

use std::collections::HashSet;

use crate::algebra::Algebra;
use crate::graph::NodeId;
use crate::vocabulary::types::can_vary;

/// Adds those of the nodes, children first, that vary with a variable.
pub fn activate(algebra: &Algebra, nodes: &[NodeId], variables: &[NodeId], active: &mut HashSet<NodeId>) {
    for id in nodes {
        let node = algebra.node(*id);
        let varies = node.children.iter().any(|child| active.contains(child)) || algebra.reads_inside(*id, variables);
        if varies && can_vary(node.field.data_type()) {
            active.insert(*id);
        }
    }
}
