//! Activity analysis: the nodes that vary with the variables.

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::import;
    use crate::vocabulary::testing::columns;
    use arrow::datatypes::DataType;
    use datafusion_common::Result;
    use datafusion_expr::{cast, col};

    #[test]
    fn what_varies_reads_a_variable_and_can() -> Result<()> {
        let schema = columns()?;
        let mut algebra = Algebra::new(&schema);
        let x = import(&mut algebra, &col("x"))?;
        let whole = cast(col("x"), DataType::Int64);
        for (expr, varies) in [
            (col("x") * col("y"), true),
            (col("y") * col("n"), false),
            (whole.clone(), false),
            (whole + col("i"), false),
            (col("x").gt(col("y")), false),
        ] {
            let root = import(&mut algebra, &expr)?;
            let mut active = HashSet::from([x]);
            activate(&algebra, &algebra.reachable(root), &[x], &mut active);
            assert_eq!(active.contains(&root), varies, "{expr}");
        }
        Ok(())
    }
}
