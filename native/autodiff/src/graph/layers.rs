//! Nodes as layers of expressions: what is used more than once is computed in one layer and read as a column by the next.

use arrow::datatypes::DataType;
use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{Column, Result, internal_datafusion_err};
use datafusion_expr::{Expr, Operator};
use std::collections::{BTreeMap, BTreeSet};

use super::export::export;
use super::failures::is_total;
use super::intern::{Graph, Node, NodeId};

/// Expressions over the output of the highest of some layers.
#[derive(Debug)]
pub struct Layers {
    /// The expressions of each layer over the output of the one below, the lowest first, over the columns of the schema.
    pub below: Vec<Vec<Expr>>,
    /// The roots.
    pub roots: Vec<Expr>,
}

/// The size at which nodes are written as layers.
#[derive(Debug, Clone, Copy)]
pub struct Threshold {
    /// The expressions have at least this many times the operations when they are not layered.
    pub times: u64,
    /// And at least this many more.
    pub more: u64,
    /// How many operations may be repeated within a layer so that a value needs none of its own. DataFusion computes them once,
    /// for what it takes to find them; a layer more takes longer.
    pub repeated: usize,
}

/// A node that the plan reads from the graph.
#[derive(Debug, Clone, Copy)]
pub struct Root {
    /// The node.
    pub node: NodeId,
    /// Whether it is evaluated for all rows.
    pub always: bool,
}

/// The assignment of a node to a layer.
#[derive(Debug, Clone, Copy, Default)]
struct Assignment {
    /// The number of its uses.
    uses: usize,
    /// Its size without layers, and its size over the layers below its own.
    tree: u64,
    size: usize,
    /// Whether it may be evaluated where a branch is not taken.
    movable: bool,
    /// The layer that may compute it.
    layer: usize,
    /// Whether its users are in higher layers.
    cut: bool,
    /// The highest layer that reads it as a column.
    read_by: Option<usize>,
}

/// Writes the roots as layers if that is much smaller, else without layers. Returns `None` if they are too large. The layers pass on the
/// columns `kept` of the schema, and `name` names the columns that they add.
pub fn layer(
    graph: &Graph,
    roots: &[Root],
    kept: &BTreeSet<usize>,
    threshold: Threshold,
    name: &mut dyn FnMut() -> String,
) -> Result<Option<Layers>> {
    let nodes: Vec<_> = roots.iter().map(|root| root.node).collect();
    let order = graph.reachable_from(&nodes);
    let places = assign_layers(graph, &order, roots, threshold);
    let trees = nodes.iter().fold(0_u64, |sum, root| sum.saturating_add(places[root.0].tree));
    let distinct = order.len() as u64;
    let top = nodes.iter().map(|root| places[root.0].layer + usize::from(places[root.0].cut)).max().unwrap_or(0);
    if top == 0 || trees < threshold.times * distinct || trees < distinct + threshold.more {
        let roots = nodes.iter().map(|root| export(graph, *root)).collect::<Result<_>>()?;
        return Ok(Some(Layers { below: vec![], roots }));
    }
    let mut writer = LayerWriter {
        graph,
        places,
        columns: kept.iter().map(|column| (*column, top)).collect(),
        names: vec![None; order.last().map_or(0, |last| last.0 + 1)],
        name,
        left: trees,
    };
    let Some(roots) = writer.all(&nodes, top, LayerWriter::write_value)? else { return Ok(None) };
    let mut below = vec![];
    for layer in (0..top).rev() {
        let (own, passed): (Vec<_>, Vec<_>) = order
            .iter()
            .filter(|id| writer.places[id.0].read_by.is_some_and(|reader| reader > layer))
            .filter(|id| writer.places[id.0].layer <= layer)
            .partition(|id| writer.places[id.0].layer == layer);
        let Some(computed) = writer.all(&own, layer, LayerWriter::write_operation)? else { return Ok(None) };
        let mut exprs = vec![];
        for (column, reader) in &writer.columns {
            if *reader > layer {
                exprs.push(Expr::Column(Column::from(graph.schema.qualified_field(*column))));
            }
        }
        for id in passed {
            exprs.push(writer.column(id));
        }
        for (id, expr) in own.into_iter().zip(computed) {
            exprs.push(expr.alias(writer.named(id)));
        }
        below.push(exprs);
    }
    below.reverse();
    Ok(Some(Layers { below, roots }))
}

fn assign_layers(graph: &Graph, order: &[NodeId], roots: &[Root], threshold: Threshold) -> Vec<Assignment> {
    let mut places = vec![Assignment::default(); order.last().map_or(0, |last| last.0 + 1)];
    let mut always = vec![false; places.len()];
    for root in roots {
        places[root.node.0].uses += 1;
        always[root.node.0] |= root.always;
    }
    for id in order.iter().rev() {
        let node = graph.node(*id);
        for (position, child) in node.children.iter().enumerate() {
            places[child.0].uses += 1;
            always[child.0] |= always[id.0] && !is_conditional(node, position);
        }
    }
    let mut safe = vec![false; places.len()];
    for id in order {
        let node = graph.node(*id);
        let children = &node.children;
        safe[id.0] = children.iter().all(|child| safe[child.0]) && is_total(graph, node);
        let movable = !children.is_empty()
            && (always[id.0] || safe[id.0])
            && !node.volatile
            // DataFusion no longer knows what is not NULL if the test of it stands elsewhere.
            && node.field.data_type() != &DataType::Boolean;
        let above = |child: &NodeId| places[child.0].layer + usize::from(places[child.0].cut);
        let layer = children.iter().map(above).max().unwrap_or(0);
        let (mut tree, mut size) = (1_u64, 1_usize);
        for child in children {
            let child = &places[child.0];
            tree = tree.saturating_add(child.tree);
            size = size.saturating_add(if child.movable && child.layer < layer { 1 } else { child.size });
        }
        let uses = places[id.0].uses;
        let repeated = uses.saturating_sub(1).saturating_mul(size - 1);
        let cut = movable && repeated > threshold.repeated;
        places[id.0] = Assignment { uses, tree, size, movable, layer, cut, read_by: None };
    }
    places
}

/// Returns whether a node may leave out a child where its value does not matter.
fn is_conditional(node: &Node, position: usize) -> bool {
    match &node.shape {
        Expr::Case(case) => position > usize::from(case.expr.is_some()),
        Expr::BinaryExpr(binary) => matches!(binary.op, Operator::And | Operator::Or) && position > 0,
        Expr::ScalarFunction(call) => call.func.short_circuits() && position > 0,
        _ => false,
    }
}

/// Writes nodes as expressions, from the highest layer down.
struct LayerWriter<'w, 'a> {
    graph: &'w Graph<'a>,
    places: Vec<Assignment>,
    /// The columns of the schema that are read, and the highest layer that reads each.
    columns: BTreeMap<usize, usize>,
    names: Vec<Option<String>>,
    name: &'w mut dyn FnMut() -> String,
    /// The number of operations that may still be written.
    left: u64,
}

impl LayerWriter<'_, '_> {
    /// Writes nodes in a layer. Returns `None` if they are too large.
    fn all(
        &mut self,
        nodes: &[NodeId],
        layer: usize,
        write: fn(&mut Self, NodeId, usize) -> Result<Option<Expr>>,
    ) -> Result<Option<Vec<Expr>>> {
        nodes.iter().map(|id| write(self, *id, layer)).collect()
    }

    /// Writes a node where a layer reads it: as a column if a lower layer computes it.
    fn write_value(&mut self, id: NodeId, layer: usize) -> Result<Option<Expr>> {
        let place = &mut self.places[id.0];
        if place.movable && place.layer < layer {
            place.read_by = place.read_by.max(Some(layer));
            return Ok(Some(self.column(id)));
        }
        self.write_operation(id, layer)
    }

    /// Writes a node where a layer computes it.
    #[recursive::recursive]
    fn write_operation(&mut self, id: NodeId, layer: usize) -> Result<Option<Expr>> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        self.left = left;
        let node = self.graph.node(id);
        if let Expr::Column(column) = &node.shape
            && let Some(index) = self.graph.schema.maybe_index_of_column(column)
        {
            let reader = self.columns.entry(index).or_default();
            *reader = layer.max(*reader);
        }
        let Some(children) = self.all(&node.children, layer, Self::write_value)? else { return Ok(None) };
        let mut children = children.into_iter();
        let written = node.shape.clone().map_children(|_| {
            children
                .next()
                .map(Transformed::yes)
                .ok_or_else(|| internal_datafusion_err!("{} lacks an operand", node.shape))
        })?;
        Ok(Some(written.data))
    }

    fn column(&mut self, id: NodeId) -> Expr {
        Expr::Column(Column::new_unqualified(self.named(id)))
    }

    fn named(&mut self, id: NodeId) -> String {
        self.names[id.0].get_or_insert_with(&mut *self.name).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::import::import;
    use crate::vocabulary::testing::columns;
    use datafusion_expr::col;

    const ALWAYS: Threshold = Threshold { times: 1, more: 0, repeated: 0 };

    #[test]
    fn what_is_used_twice_is_a_column_of_the_layer_below() -> Result<()> {
        let schema = columns()?;
        let mut graph = Graph::new(&schema);
        let sum = col("x") + col("y");
        let roots = [Root { node: import(&mut graph, &(sum.clone() * sum.clone()))?, always: true }];
        let name = &mut || "shared".to_owned();
        let made = layer(&graph, &roots, &BTreeSet::from([2]), ALWAYS, name)?;
        let Layers { below, roots: written } = made.ok_or_else(|| internal_datafusion_err!("too large"))?;
        assert_eq!(written, [col("shared") * col("shared")]);
        assert_eq!(below, [[col("n"), sum.clone().alias("shared")]]);
        // It is not worth a layer.
        let made = layer(&graph, &roots, &BTreeSet::new(), Threshold { more: 100, ..ALWAYS }, name)?;
        let Layers { below, roots: written } = made.ok_or_else(|| internal_datafusion_err!("too large"))?;
        assert_eq!((below.len(), written), (0, vec![sum.clone() * sum]));
        Ok(())
    }
}
