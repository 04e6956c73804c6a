//! Import of expressions into the graph.

use datafusion_common::tree_node::{TreeNode, TreeNodeRecursion, TreeNodeVisitor};
use datafusion_common::{Result, internal_datafusion_err, internal_err};
use datafusion_expr::Expr;
use datafusion_expr::expr::ScalarFunction;

use super::intern::{Graph, NodeId};
use super::program::parse_reference;
use crate::vocabulary::columns::is_opaque;

/// Imports an expression. An alias is the expression that it names.
pub fn import(graph: &mut Graph, expr: &Expr) -> Result<NodeId> {
    import_with(graph, expr, &[])
}

/// Imports an expression that may refer to lines of a program, which are these nodes.
pub fn import_with(graph: &mut Graph, expr: &Expr, lines: &[NodeId]) -> Result<NodeId> {
    let mut importer = Importer { graph, lines, done: vec![] };
    expr.visit(&mut importer)?;
    let Importer { mut done, .. } = importer;
    done.pop().ok_or_else(|| internal_datafusion_err!("the expression {expr} was not visited"))
}

/// Imports a program with `count` results.
pub fn import_program(graph: &mut Graph, program: Expr, count: usize) -> Result<Vec<NodeId>> {
    let Expr::ScalarFunction(ScalarFunction { args: lines, .. }) = program else {
        return internal_err!("{program} is no program");
    };
    let Some(first) = lines.len().checked_sub(count) else {
        return internal_err!("a program of {} lines does not give {count} values", lines.len());
    };
    let mut nodes = Vec::with_capacity(lines.len());
    for line in &lines {
        let id = import_with(graph, line, &nodes)?;
        nodes.push(id);
    }
    Ok(nodes.split_off(first))
}

/// Imports a column. Two spellings of one column of the schema are one node.
fn import_leaf(graph: &mut Graph, expr: &Expr) -> Result<NodeId> {
    let index = match expr {
        Expr::Column(column) => graph.schema.maybe_index_of_column(column),
        _ => None,
    };
    if let Some(id) = index.and_then(|index| graph.columns.get(&index)) {
        return Ok(*id);
    }
    let id = graph.intern(expr.clone(), vec![])?;
    if let Some(index) = index {
        graph.columns.insert(index, id);
    }
    Ok(id)
}

/// Visits children first; `done` holds the nodes whose parent is still to come.
struct Importer<'d, 'a> {
    graph: &'d mut Graph<'a>,
    lines: &'d [NodeId],
    done: Vec<NodeId>,
}

impl TreeNodeVisitor<'_> for Importer<'_, '_> {
    type Node = Expr;

    fn f_down(&mut self, expr: &Expr) -> Result<TreeNodeRecursion> {
        Ok(if is_opaque(expr) { TreeNodeRecursion::Jump } else { TreeNodeRecursion::Continue })
    }

    fn f_up(&mut self, expr: &Expr) -> Result<TreeNodeRecursion> {
        if matches!(expr, Expr::Alias(_)) {
            return Ok(TreeNodeRecursion::Continue);
        }
        let id = if is_opaque(expr) {
            self.graph.intern(expr.clone(), vec![])?
        } else {
            let mut count = 0;
            expr.apply_children(|_| {
                count += 1;
                Ok(TreeNodeRecursion::Continue)
            })?;
            if let Some(line) = parse_reference(expr).and_then(|line| self.lines.get(line)) {
                *line
            } else if count == 0 {
                import_leaf(self.graph, expr)?
            } else {
                let children = self.done.split_off(self.done.len() - count);
                self.graph.intern_with_children(expr.clone(), children)?
            }
        };
        self.done.push(id);
        Ok(TreeNodeRecursion::Continue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::program::to_program;
    use crate::vocabulary::testing::columns;
    use datafusion_expr::col;

    #[test]
    fn a_program_has_each_operation_once() -> Result<()> {
        let schema = columns()?;
        let mut graph = Graph::new(&schema);
        let sum = col("x") + col("y");
        let roots = [import(&mut graph, &(sum.clone() * sum))?, import(&mut graph, &col("n"))?];
        let program = to_program(&graph, &roots)?;
        let Expr::ScalarFunction(call) = &program else { return internal_err!("{program}") };
        // The sum, its square, and what each root gives.
        assert_eq!(call.args.len(), 4);
        assert_eq!(import_program(&mut graph, program, 2)?, roots);
        Ok(())
    }

    #[test]
    fn what_is_no_program_is_an_error() -> Result<()> {
        let schema = columns()?;
        let mut graph = Graph::new(&schema);
        assert!(import_program(&mut graph, col("x"), 1).is_err());
        let root = import(&mut graph, &col("x"))?;
        let program = to_program(&graph, &[root])?;
        assert!(import_program(&mut graph, program, 2).is_err());
        Ok(())
    }
}
