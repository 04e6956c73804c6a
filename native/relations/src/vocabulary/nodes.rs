//! Access to the parts of plan nodes.

use super::nullable_wrapper::draws;
use datafusion_common::Result;
use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_expr::expr_rewriter::NamePreserver;
use datafusion_expr::utils::grouping_set_to_exprlist;
use datafusion_expr::{Aggregate, Expr, JoinType, LogicalPlan};
use std::borrow::Cow;
use std::collections::HashSet;

/// A pattern for the nodes that only occur above queries. An exhaustive match uses it instead of `_`. So a node that a
/// new version of DataFusion adds is a compile error until each match handles it.
macro_rules! non_query_nodes {
    () => {
        datafusion_expr::LogicalPlan::Statement(_)
            | datafusion_expr::LogicalPlan::Explain(_)
            | datafusion_expr::LogicalPlan::Analyze(_)
            | datafusion_expr::LogicalPlan::Dml(_)
            | datafusion_expr::LogicalPlan::Ddl(_)
            | datafusion_expr::LogicalPlan::Copy(_)
            | datafusion_expr::LogicalPlan::DescribeTable(_)
    };
}

pub(crate) use non_query_nodes;

/// Returns a node in one line, for messages.
pub fn format_node(node: &LogicalPlan) -> String {
    node.display().to_string().lines().next().unwrap_or_default().to_owned()
}

/// Returns whether an expression of a node itself has a subquery.
pub fn has_subquery(node: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    node.apply_subqueries(|_| {
        found = true;
        Ok(TreeNodeRecursion::Stop)
    })?;
    Ok(found)
}

/// Returns whether an expression of a node itself draws a random number or the like.
pub fn draws_itself(node: &LogicalPlan) -> bool {
    let mut found = false;
    let visited = node.apply_expressions(|expr| {
        found |= draws(expr);
        Ok(TreeNodeRecursion::Continue)
    });
    debug_assert!(visited.is_ok(), "the closure never fails");
    found
}

/// Returns a node whose expressions have been rewritten, under the names that they have.
///
/// # Errors
/// If an expression cannot be rewritten.
pub fn with_expressions(
    node: LogicalPlan,
    mut rewrite: impl FnMut(Expr) -> Result<Transformed<Expr>>,
) -> Result<Transformed<LogicalPlan>> {
    let names = NamePreserver::new(&node);
    let mut named = |expr: Expr, names: &NamePreserver| {
        let name = names.save(&expr);
        let rewritten = rewrite(expr)?;
        Ok(if rewritten.transformed { rewritten.update_data(|expr| name.restore(expr)) } else { rewritten })
    };
    node.map_expressions(|expr| match expr {
        // Columns are named by what is inside.
        sets @ Expr::GroupingSet(_) => sets.map_children(|key| named(key, &NamePreserver::new_for_projection())),
        expr => named(expr, &names),
    })
}

/// Returns whether an expression of a node itself has such a part.
///
/// # Errors
/// If an expression cannot be gone through.
pub fn any_part(node: &LogicalPlan, is: impl Fn(&Expr) -> bool) -> Result<bool> {
    let mut found = false;
    node.apply_expressions(|expr| {
        found = expr.exists(|part| Ok(is(part)))?;
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

/// Returns whether a plan or a subquery in it has such a node.
///
/// # Errors
/// If the plan cannot be gone through.
pub fn any_node(plan: &LogicalPlan, mut is: impl FnMut(&LogicalPlan) -> Result<bool>) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        found = is(node)?;
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

/// Returns the same with the CTEs and views that are scanned in it, each of them once.
///
/// # Errors
/// If a plan cannot be gone through.
pub fn any_node_behind(plan: &LogicalPlan, mut is: impl FnMut(&LogicalPlan) -> Result<bool>) -> Result<bool> {
    any_beside(plan, &mut HashSet::new(), &mut is)
}

#[recursive::recursive]
fn any_beside(
    plan: &LogicalPlan,
    seen: &mut HashSet<*const LogicalPlan>,
    is: &mut dyn FnMut(&LogicalPlan) -> Result<bool>,
) -> Result<bool> {
    any_node(plan, |node| {
        if is(node)? {
            return Ok(true);
        }
        match common_scanned_by(node) {
            Some(common) if seen.insert(common) => any_beside(common, seen, is),
            _ => Ok(false),
        }
    })
}

/// Returns the CTE or view that a node scans.
pub fn common_scanned_by(node: &LogicalPlan) -> Option<&LogicalPlan> {
    let LogicalPlan::TableScan(scan) = node else { return None };
    match scan.source.get_logical_plan() {
        Some(Cow::Borrowed(common)) => Some(common),
        _ => None,
    }
}

/// Returns a node and its inputs, in the places of which there is nothing.
pub fn without_inputs(plan: LogicalPlan) -> Result<(LogicalPlan, Vec<LogicalPlan>)> {
    let mut inputs = vec![];
    let plan = plan.map_children(|input| {
        inputs.push(input);
        Ok(Transformed::yes(LogicalPlan::default()))
    })?;
    Ok((plan.data, inputs))
}

/// Returns a node with these inputs in the places of its own.
pub fn with_inputs(plan: LogicalPlan, inputs: Vec<LogicalPlan>) -> Result<LogicalPlan> {
    let mut inputs = inputs.into_iter();
    let plan = plan.map_children(|place| Ok(inputs.next().map_or_else(|| Transformed::no(place), Transformed::yes)))?;
    Ok(plan.data)
}

/// Returns whether a plan is known to have one row at most. DataFusion counts none for a SELECT without FROM, so that a union of several
/// seems to have none either.
#[recursive::recursive]
pub fn has_one_row_at_most(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Union(_) => false,
        // It may have the row of each side.
        LogicalPlan::Join(join) if join.join_type == JoinType::Full => false,
        LogicalPlan::Projection(_)
        | LogicalPlan::Filter(_)
        | LogicalPlan::Window(_)
        | LogicalPlan::Sort(_)
        | LogicalPlan::Join(_)
        | LogicalPlan::Distinct(_)
        | LogicalPlan::Repartition(_)
        | LogicalPlan::SubqueryAlias(_) => plan.inputs().into_iter().all(has_one_row_at_most),
        counted => counted.max_rows().is_some_and(|rows| rows <= 1),
    }
}

/// Returns what computes each column of an aggregate: its keys, nothing for the number of the grouping set behind them, its functions.
pub fn computed(aggregate: &Aggregate) -> Result<Vec<Option<&Expr>>> {
    let Aggregate { group_expr, aggr_expr, schema, .. } = aggregate;
    let mut computed: Vec<_> = grouping_set_to_exprlist(group_expr)?.into_iter().map(Some).collect();
    computed.resize(schema.fields().len() - aggr_expr.len(), None);
    computed.extend(aggr_expr.iter().map(Some));
    Ok(computed)
}
