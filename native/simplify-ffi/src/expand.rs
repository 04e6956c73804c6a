//! From the table back to expression trees.

use datafusion_common::{Result, resources_err};
use datafusion_expr::Expr;

use crate::error::malformed;
use crate::node::{child_indices, with_children};
use crate::stack::with_stack_for;
use crate::table::Item;

/// The most nodes the trees may have together, as sharing in a table may hide any number of them.
const MAX_NODES: u64 = 1 << 22;

/// What is known of an entry before it is built.
#[derive(Clone, Default)]
struct Plan {
    children: Vec<u32>,
    uses: usize,
    nodes: u64,
    depth: usize,
}

/// The expressions at `roots`, and the depth of the deepest.
///
/// No expression is cloned for its last use: a deep tree whose entries are used once is built by moves alone.
pub(crate) fn expand(items: &[Item], roots: &[u32]) -> Result<(Vec<Expr>, usize)> {
    let mut plans = plan(items)?;
    count_uses(&mut plans, roots)?;
    let depth = plans.iter().map(|plan| plan.depth).max().unwrap_or(0);
    let built = with_stack_for(depth, || build(items, plans, roots))?;
    Ok((built, depth))
}

fn plan(items: &[Item]) -> Result<Vec<Plan>> {
    let mut plans: Vec<Plan> = Vec::with_capacity(items.len());
    for item in items {
        let children = match item {
            Item::Shell(shell) => child_indices(shell)?,
            Item::Whole(_) => vec![],
        };
        let (mut nodes, mut depth) = (1, 0);
        for &child in &children {
            let Some(child) = plans.get(child as usize) else {
                return Err(malformed("an entry refers to one that does not precede it"));
            };
            nodes = child.nodes.saturating_add(nodes);
            depth = child.depth.max(depth);
        }
        plans.push(Plan { children, uses: 0, nodes, depth: depth + 1 });
    }
    Ok(plans)
}

/// Counts the uses of the entries that `roots` reach.
fn count_uses(plans: &mut [Plan], roots: &[u32]) -> Result<()> {
    let mut nodes: u64 = 0;
    for &root in roots {
        let Some(root) = plans.get_mut(root as usize) else {
            return Err(malformed("a root is not in the table"));
        };
        root.uses += 1;
        nodes = nodes.saturating_add(root.nodes);
    }
    if nodes > MAX_NODES {
        return resources_err!(
            "simplify: written out, the expression has {nodes} nodes; at most {MAX_NODES} are allowed"
        );
    }
    for parent in (0..plans.len()).rev() {
        let (before, rest) = plans.split_at_mut(parent);
        let parent = &rest[0];
        if parent.uses > 0 {
            for &child in &parent.children {
                before[child as usize].uses += 1;
            }
        }
    }
    Ok(())
}

fn build(items: &[Item], mut plans: Vec<Plan>, roots: &[u32]) -> Result<Vec<Expr>> {
    let mut built: Vec<Option<Expr>> = vec![None; items.len()];
    for (entry, item) in items.iter().enumerate() {
        if plans[entry].uses == 0 {
            continue;
        }
        let children = std::mem::take(&mut plans[entry].children);
        let expr = match item {
            Item::Whole(expr) => expr.clone(),
            Item::Shell(shell) => {
                let children =
                    children.iter().map(|&child| take(&mut built, &mut plans, child)).collect::<Result<Vec<_>>>()?;
                with_children(shell.clone(), children)?
            }
        };
        built[entry] = Some(expr);
    }
    roots.iter().map(|&root| take(&mut built, &mut plans, root)).collect()
}

/// The expression of an entry: itself for the last use, a clone before.
fn take(built: &mut [Option<Expr>], plans: &mut [Plan], entry: u32) -> Result<Expr> {
    let entry = entry as usize;
    plans[entry].uses -= 1;
    let expr = if plans[entry].uses == 0 { built[entry].take() } else { built[entry].clone() };
    expr.ok_or_else(|| malformed("an entry is used before it is built"))
}
