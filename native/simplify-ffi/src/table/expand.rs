//! Expansion of a table to expression trees.

use datafusion_common::{Result, resources_err};
use datafusion_expr::Expr;

use crate::table::{Node, join};
use crate::wire::error::malformed;

/// The maximum number of nodes of all trees together: sharing in a table may hide any number of them. Large values count as several nodes,
/// see [`node_weight`].
const MAX_NODES: u64 = 1 << 22;

/// The maximum depth of a tree: each level takes a part of the stack.
const MAX_DEPTH: usize = 1 << 16;

/// The stack that cloning, comparing or dropping one level of an expression takes, with a margin.
const STACK_PER_LEVEL: usize = 2048;

/// The stack that is needed in addition.
const STACK_BASE: usize = 256 * 1024;

/// Runs `work` on a stack that is large enough for expressions of `depth` levels.
///
/// DataFusion's tree traversals grow the stack by themselves, but the derived `Clone`, `PartialEq` and `Drop` of expressions do not.
pub(crate) fn with_stack_for<T>(depth: usize, work: impl FnOnce() -> T) -> T {
    let needed = STACK_BASE + depth.saturating_mul(STACK_PER_LEVEL);
    stacker::maybe_grow(needed, 2 * needed, work)
}

/// Builds the expressions at `roots`, and returns them with the depth of the deepest.
///
/// No expression is cloned for its last use: a deep tree whose entries are used once is built by moves alone.
pub(crate) fn expand(nodes: &[Node], roots: &[u32]) -> Result<(Vec<Expr>, usize)> {
    let sizes = measure_sizes(nodes)?;
    let uses = count_uses(nodes, &sizes, roots)?;
    let depth = deepest_size(&sizes);
    let exprs = with_stack_for(depth, || build_trees(nodes, uses, roots))?;
    Ok((exprs, depth))
}

/// Returns the depth of the deepest tree of these nodes.
pub(crate) fn max_depth(nodes: &[Node]) -> Result<usize> {
    Ok(deepest_size(&measure_sizes(nodes)?))
}

fn deepest_size(sizes: &[Size]) -> usize {
    sizes.iter().map(|size| size.depth).max().unwrap_or(0)
}

/// The size of a node's tree.
struct Size {
    nodes: u64,
    depth: usize,
}

/// Returns the weight of a node without its children, in nodes: a clone copies its names and values.
fn node_weight(shape: &Expr) -> u64 {
    let bytes = match shape {
        Expr::Literal(value, _) => value.size(),
        Expr::Column(column) => column.name.len(),
        Expr::Alias(alias) => alias.name.len(),
        Expr::Placeholder(placeholder) => placeholder.id.len(),
        _ => 0,
    };
    1 + (bytes / size_of::<Expr>()) as u64
}

fn measure_sizes(nodes: &[Node]) -> Result<Vec<Size>> {
    let mut sizes: Vec<Size> = Vec::with_capacity(nodes.len());
    for node in nodes {
        let mut size = Size { nodes: node_weight(&node.shape), depth: 0 };
        for &child in &node.children {
            let Some(child) = sizes.get(child as usize) else {
                return Err(malformed("an entry refers to one that does not precede it"));
            };
            size.nodes = size.nodes.saturating_add(child.nodes);
            size.depth = size.depth.max(child.depth);
        }
        if size.depth >= MAX_DEPTH {
            return resources_err!(
                "simplify: an expression is more than {MAX_DEPTH} levels deep, the most that may cross"
            );
        }
        sizes.push(Size { depth: size.depth + 1, ..size });
    }
    Ok(sizes)
}

/// Counts the uses of each node by the nodes that `roots` reach.
fn count_uses(nodes: &[Node], sizes: &[Size], roots: &[u32]) -> Result<Vec<usize>> {
    let mut uses = vec![0; nodes.len()];
    let mut total: u64 = 0;
    for &root in roots {
        let Some(size) = sizes.get(root as usize) else {
            return Err(malformed("a root is not in the table"));
        };
        uses[root as usize] += 1;
        total = total.saturating_add(size.nodes);
    }
    if total > MAX_NODES {
        return resources_err!(
            "simplify: written out, the expression has {total} nodes; at most {MAX_NODES} are allowed"
        );
    }
    for (entry, node) in nodes.iter().enumerate().rev() {
        if uses[entry] > 0 {
            for &child in &node.children {
                uses[child as usize] += 1;
            }
        }
    }
    Ok(uses)
}

fn build_trees(nodes: &[Node], uses: Vec<usize>, roots: &[u32]) -> Result<Vec<Expr>> {
    let mut trees = TreeBuilder { built: vec![None; nodes.len()], uses };
    for (entry, node) in nodes.iter().enumerate() {
        if trees.uses[entry] == 0 {
            continue;
        }
        let expr = if node.children.is_empty() {
            node.shape.clone()
        } else {
            let children = node.children.iter().map(|&child| trees.take(child)).collect::<Result<Vec<_>>>()?;
            join(node.shape.clone(), children)?
        };
        trees.built[entry] = Some(expr);
    }
    roots.iter().map(|&root| trees.take(root)).collect()
}

struct TreeBuilder {
    built: Vec<Option<Expr>>,
    /// The remaining uses of each.
    uses: Vec<usize>,
}

impl TreeBuilder {
    /// Returns the expression of an entry: the original for its last use, a clone before.
    fn take(&mut self, entry: u32) -> Result<Expr> {
        let entry = entry as usize;
        self.uses[entry] -= 1;
        let expr = if self.uses[entry] == 0 { self.built[entry].take() } else { self.built[entry].clone() };
        expr.ok_or_else(|| malformed("an entry is used before it is built"))
    }
}
