//! Derivatives of a node as a stack of projections below it, where that is much less than the derivatives written out.
//!
//! Each derivative that `simplify` gives is a tree, in which everything that the derivatives of a node share is written out: those
//! of an expression by `n` columns have the square of `n` operations, and DataFusion walks through all of them many times. As a
//! stack, what is used more than once is a column of one projection that the next one reads.
//!
//! ```text
//! Projection: jvp(ln(1 + exp(z)), z, 1, u, ∂u), jvp(ln(1 + exp(z)), z, 1, v, ∂v)
//!   TableScan: t
//! ```
//!
//! becomes
//!
//! ```text
//! Projection: ∂value #2 * ∂u, ∂value #2 * ∂v
//!   Projection: ∂u, ∂v, ∂value / (1 + ∂value) AS ∂value #2
//!     Projection: ∂u, ∂v, exp(z) AS ∂value
//!       TableScan: t
//! ```

mod calls;
mod parts;

use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_common::{Column, Result};
use datafusion_expr::expr_rewriter::NamePreserver;
use datafusion_expr::simplify::SimplifyContext;
use datafusion_expr::{Expr, LogicalPlan, Projection};
use datafusion_optimizer::simplify_expressions::ExprSimplifier;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use xql_autodiff::vocabulary::columns::columns_read;
use xql_autodiff::{Graph, Root, Threshold, import, layer};

use self::calls::Calls;
use self::parts::replace_parts;
use crate::plan::rewrite::rewrite_up;
use crate::vocabulary::names::{Names, restore};
use crate::vocabulary::nodes::non_query_nodes;
use crate::vocabulary::operators::Operators;

/// The sizes from which derivatives are written as a stack.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// The functions of all calls of a node have so many parts.
    pub functions: usize,
    /// How much smaller the graph is than the derivatives written out.
    pub threshold: Threshold,
}

/// Writes row-local calls as stacks of projections, where that is much smaller.
pub fn stacked(plan: LogicalPlan, operators: &Operators, size: Size) -> Result<Transformed<LogicalPlan>> {
    let mut names = Names::from_plan(&plan)?;
    rewrite_up(plan, &mut |node| stack(node, operators, size, &mut names))
}

fn stack(plan: LogicalPlan, operators: &Operators, size: Size, names: &mut Names) -> Result<Transformed<LogicalPlan>> {
    // DataFusion pushes a filter through projections, and inlines what they compute.
    let input = match &plan {
        LogicalPlan::Projection(node) => Arc::clone(&node.input),
        LogicalPlan::Aggregate(node) => Arc::clone(&node.input),
        LogicalPlan::Window(node) => Arc::clone(&node.input),
        LogicalPlan::Sort(node) => Arc::clone(&node.input),
        LogicalPlan::Filter(_)
        | LogicalPlan::Join(_)
        | LogicalPlan::Repartition(_)
        | LogicalPlan::Union(_)
        | LogicalPlan::TableScan(_)
        | LogicalPlan::EmptyRelation(_)
        | LogicalPlan::Subquery(_)
        | LogicalPlan::SubqueryAlias(_)
        | LogicalPlan::Limit(_)
        | LogicalPlan::Values(_)
        | LogicalPlan::Distinct(_)
        | LogicalPlan::Unnest(_)
        | LogicalPlan::RecursiveQuery(_)
        | LogicalPlan::Extension(_)
        | non_query_nodes!() => return Ok(Transformed::no(plan)),
    };
    if !operators.have_call_in(&plan)? {
        return Ok(Transformed::no(plan));
    }
    let mut calls = Calls::over(input.schema(), operators);
    let Some((taken, kept)) = split_calls(&plan, &mut calls, names)? else { return Ok(Transformed::no(plan)) };
    if calls.size()? < size.functions {
        return Ok(Transformed::no(plan));
    }
    let schema = Arc::new(calls.schema()?);
    let info = SimplifyContext::builder().with_schema(Arc::clone(&schema)).build();
    let mut graph = Graph::new(&schema);
    if !calls.differentiate(&mut graph, &info)? {
        return Ok(Transformed::no(plan));
    }
    let simplifier = ExprSimplifier::new(info);
    let mut roots = vec![];
    for (part, always) in taken {
        roots.push(Root { node: import(&mut graph, &simplifier.simplify(part)?)?, always });
    }
    let named = &mut || names.part("value");
    let Some(layers) = layer(&graph, &roots, &kept, size.threshold, named)? else { return Ok(Transformed::no(plan)) };
    let mut below = Arc::unwrap_or_clone(input);
    for exprs in layers.below {
        below = LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(below))?);
    }
    let schema = Arc::clone(plan.schema());
    let kept_names = NamePreserver::new(&plan);
    let mut roots = layers.roots.into_iter();
    let plan = plan.map_expressions(|expr| {
        let name = kept_names.save(&expr);
        let expr = replace_parts(expr, &mut |part, _| Ok(roots.next().unwrap_or(part)))?;
        Ok(Transformed::yes(name.restore(expr)))
    })?;
    let plan = plan.data.map_children(|_| Ok(Transformed::yes(std::mem::take(&mut below))))?;
    Ok(Transformed::yes(restore(plan.data.recompute_schema()?, &schema)?))
}

/// The parts of a node's expressions, each with whether it is evaluated for all rows.
type Parts = Vec<(Expr, bool)>;

/// Returns the parts of a node's expressions with columns for their calls, and the columns of the input that it reads besides;
/// none if one has to be evaluated where it stands.
fn split_calls(plan: &LogicalPlan, calls: &mut Calls, names: &mut Names) -> Result<Option<(Parts, BTreeSet<usize>)>> {
    let mut parts = vec![];
    let mut stays = false;
    let mut kept = BTreeSet::new();
    let schema = Arc::clone(plan.inputs()[0].schema());
    let exact: HashMap<_, _> = schema.columns().into_iter().zip(0..).collect();
    let index_of = |column: &Column| exact.get(column).copied().or_else(|| schema.maybe_index_of_column(column));
    let passes_all_on = matches!(plan, LogicalPlan::Window(_) | LogicalPlan::Sort(_));
    if passes_all_on {
        kept.extend(0..schema.fields().len());
    }
    plan.apply_expressions(|expr| {
        let rest = replace_parts(expr.clone(), &mut |part, always| {
            if !stays {
                match calls.taken_out(part, names)? {
                    Some(taken) => parts.push((taken, always)),
                    None => stays = true,
                }
            }
            Ok(Expr::Literal(datafusion_common::ScalarValue::Null, None))
        })?;
        kept.extend(columns_read(&rest).iter().filter_map(&index_of));
        Ok(if stays { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok((!stays).then_some((parts, kept)))
}
