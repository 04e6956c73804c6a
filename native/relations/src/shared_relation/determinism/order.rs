//! Completes orders to total ones, so a relation has the same rows each time it is computed.

use arrow::datatypes::FieldRef;
use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{Column, JoinType, Result, plan_err};
use datafusion_expr::logical_plan::Sort;
use datafusion_expr::{
    Distinct, DistinctOn, Expr, Limit, LogicalPlan, Projection, SortExpr, WindowFrame, WindowFrameUnits,
};
use std::sync::Arc;

use super::float_stability::is_rounded;
use crate::vocabulary::expressions::unaliased;
use crate::vocabulary::nodes::{non_query_nodes, with_expressions};

/// Returns columns that order the rows of a plan totally, most significant first. Rows that are equal in these are
/// interchangeable.
///
/// # Errors
/// If rows cannot be ordered by one of them.
pub fn total_order(plan: &LogicalPlan) -> Result<Vec<usize>> {
    let mut keys = vec![];
    for index in distinguishing(plan) {
        let field = plan.schema().field(index);
        check_order(field)?;
        // What is summed up may differ in its last digit the next time.
        keys.push((field.data_type().is_floating(), is_rounded(plan, index)?, index));
    }
    keys.sort_unstable();
    Ok(keys.into_iter().map(|(_, _, index)| index).collect())
}

/// Returns columns that distinguish rows: the keys of groups, and otherwise the columns that are not computed from
/// others.
///
/// DataFusion 54 cannot always order by both: `SanityCheckPlan ... does not satisfy order requirements`.
fn distinguishing(plan: &LogicalPlan) -> Vec<usize> {
    let all = 0..plan.schema().fields().len();
    match plan {
        LogicalPlan::SubqueryAlias(alias) => distinguishing(&alias.input),
        LogicalPlan::Filter(filter) => distinguishing(&filter.input),
        LogicalPlan::Aggregate(node) if !matches!(node.group_expr.as_slice(), [Expr::GroupingSet(_)]) => {
            (0..node.group_expr.len()).collect()
        }
        LogicalPlan::Join(join) if join.join_type == JoinType::Inner => {
            let left = join.left.schema().fields().len();
            let right = distinguishing(&join.right).into_iter().map(|index| left + index);
            distinguishing(&join.left).into_iter().chain(right).collect()
        }
        LogicalPlan::Projection(node) => distinguishing_in(node),
        LogicalPlan::Window(node) => {
            let before = node.input.schema().fields().len();
            match node.window_expr.iter().position(numbers_all_rows) {
                Some(number) => vec![before + number],
                None => all.collect(),
            }
        }
        LogicalPlan::Aggregate(_)
        | LogicalPlan::Join(_)
        | LogicalPlan::Sort(_)
        | LogicalPlan::Repartition(_)
        | LogicalPlan::Union(_)
        | LogicalPlan::TableScan(_)
        | LogicalPlan::EmptyRelation(_)
        | LogicalPlan::Subquery(_)
        | LogicalPlan::Limit(_)
        | LogicalPlan::Values(_)
        | LogicalPlan::Distinct(_)
        | LogicalPlan::Unnest(_)
        | LogicalPlan::RecursiveQuery(_)
        | LogicalPlan::Extension(_)
        | non_query_nodes!() => all.collect(),
    }
}

/// Returns the distinguishing columns of a projection: those of its input if it passes them on, and otherwise the
/// columns that it does not compute from others.
fn distinguishing_in(node: &Projection) -> Vec<usize> {
    let is_passed = |column: &Column| {
        node.expr.iter().any(|expr| matches!(unaliased(expr), Expr::Column(passed) if passed == column))
    };
    let is_computed = |expr: &Expr| {
        let is_query = |part: &Expr| matches!(part, Expr::ScalarSubquery(_) | Expr::Exists(_) | Expr::InSubquery(_));
        !matches!(unaliased(expr), Expr::Column(_))
            && !expr.is_volatile()
            && !expr.exists(|part| Ok(is_query(part))).unwrap_or(true)
            && expr.column_refs().into_iter().all(is_passed)
    };
    let passed_on = |index: usize| {
        let column = Column::from(node.input.schema().qualified_field(index));
        node.expr.iter().position(|expr| matches!(unaliased(expr), Expr::Column(passed) if *passed == column))
    };
    let width = node.input.schema().fields().len();
    let mut keys = vec![distinguishing(&node.input)];
    // Without the numbers of rows, these are as they were before they had numbers.
    if let LogicalPlan::Window(window) = node.input.as_ref() {
        let before = window.input.schema().fields().len();
        if (before..width).all(|index| passed_on(index).is_none()) {
            keys.push(distinguishing(&window.input));
        }
    }
    let passed = |keys: Vec<usize>| keys.into_iter().map(passed_on).collect::<Option<Vec<_>>>();
    let fewer = keys.into_iter().filter(|keys| keys.len() < width).find_map(passed);
    fewer.unwrap_or_else(|| (0..node.expr.len()).filter(|index| !is_computed(&node.expr[*index])).collect())
}

/// Returns whether a window function gives each row a number of its own.
fn numbers_all_rows(expr: &Expr) -> bool {
    matches!(unaliased(expr), Expr::WindowFunction(call)
        if call.fun.name() == "row_number" && call.params.partition_by.is_empty())
}

/// Refuses a column by which rows cannot be ordered.
///
/// # Errors
/// If it is one.
fn check_order(field: &FieldRef) -> Result<()> {
    if field.data_type().is_nested() {
        return plan_err!(
            "the derivative orders rows by all of their columns, and {} is of the type {}, which has no order",
            field.name(),
            field.data_type()
        );
    }
    Ok(())
}

/// Makes everything in a plan that depends on the order of rows use a total order.
///
/// ```text
/// Limit: fetch=2          ->      Limit: fetch=2
///   TableScan: w                    Sort: w.id, w.val
///                                     TableScan: w
/// ```
///
/// # Errors
/// If rows cannot be ordered by one of the columns of what orders them.
pub fn in_one_order(plan: LogicalPlan) -> Result<LogicalPlan> {
    let ordered = plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::Sort(Sort { expr, input, fetch: Some(fetch) }) => {
            let expr = ordered_further(expr, &input)?;
            Ok(Transformed::yes(LogicalPlan::Sort(Sort { expr, input, fetch: Some(fetch) })))
        }
        LogicalPlan::Limit(Limit { skip, fetch, input }) => {
            let input = Arc::new(sorted(input.as_ref().clone())?);
            Ok(Transformed::yes(LogicalPlan::Limit(Limit { skip, fetch, input })))
        }
        LogicalPlan::Distinct(Distinct::On(DistinctOn { on_expr, select_expr, sort_expr, input, schema })) => {
            let first = |expr: &Expr| SortExpr::new(expr.clone(), true, false);
            let keys = sort_expr.unwrap_or_else(|| on_expr.iter().map(first).collect());
            let sort_expr = Some(ordered_further(keys, &input)?);
            let on = DistinctOn { on_expr, select_expr, sort_expr, input, schema };
            Ok(Transformed::yes(LogicalPlan::Distinct(Distinct::On(on))))
        }
        node @ (LogicalPlan::Window(_) | LogicalPlan::Aggregate(_)) => {
            let input = node.inputs().first().map(|input| (*input).clone());
            let Some(input) = input else { return Ok(Transformed::no(node)) };
            with_expressions(node, |expr| totally_ordered(expr, &input))
        }
        node @ (LogicalPlan::Sort(_)
        | LogicalPlan::Distinct(Distinct::All(_))
        | LogicalPlan::Projection(_)
        | LogicalPlan::Filter(_)
        | LogicalPlan::Join(_)
        | LogicalPlan::Repartition(_)
        | LogicalPlan::Union(_)
        | LogicalPlan::TableScan(_)
        | LogicalPlan::EmptyRelation(_)
        | LogicalPlan::Subquery(_)
        | LogicalPlan::SubqueryAlias(_)
        | LogicalPlan::Values(_)
        | LogicalPlan::Unnest(_)
        | LogicalPlan::RecursiveQuery(_)
        | LogicalPlan::Extension(_)
        | non_query_nodes!()) => Ok(Transformed::no(node)),
    })?;
    Ok(ordered.data)
}

/// Sorts the rows of a plan, unless they are sorted already.
fn sorted(plan: LogicalPlan) -> Result<LogicalPlan> {
    match plan {
        LogicalPlan::Sort(Sort { expr, input, fetch }) => {
            let expr = ordered_further(expr, &input)?;
            Ok(LogicalPlan::Sort(Sort { expr, input, fetch }))
        }
        plan if is_sorted(&plan) => Ok(plan.map_children(|input| Ok(Transformed::yes(sorted(input)?)))?.data),
        plan => {
            let expr = ordered_further(vec![], &plan)?;
            match expr.is_empty() {
                true => Ok(plan),
                false => Ok(LogicalPlan::Sort(Sort { expr, input: Arc::new(plan), fetch: None })),
            }
        }
    }
}

/// Returns whether the rows of a plan are in the order of a sort below.
fn is_sorted(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Sort(_) => true,
        LogicalPlan::Projection(_) | LogicalPlan::SubqueryAlias(_) | LogicalPlan::Filter(_) | LogicalPlan::Limit(_) => {
            plan.inputs().into_iter().all(is_sorted)
        }
        LogicalPlan::Window(_)
        | LogicalPlan::Aggregate(_)
        | LogicalPlan::Join(_)
        | LogicalPlan::Repartition(_)
        | LogicalPlan::Union(_)
        | LogicalPlan::TableScan(_)
        | LogicalPlan::EmptyRelation(_)
        | LogicalPlan::Subquery(_)
        | LogicalPlan::Values(_)
        | LogicalPlan::Distinct(_)
        | LogicalPlan::Unnest(_)
        | LogicalPlan::RecursiveQuery(_)
        | LogicalPlan::Extension(_)
        | non_query_nodes!() => false,
    }
}

/// Completes `keys` to a total order of the rows of a plan.
///
/// The further keys have the direction of the first. Then opposite orders stay opposite, and DataFusion computes only
/// one of them:
///
/// ```sql
/// SELECT nth_value(x, 2 ORDER BY id), first_value(x ORDER BY id DESC) FROM t
/// ```
///
/// # Errors
/// If rows cannot be ordered by one of its columns.
fn ordered_further(mut keys: Vec<SortExpr>, input: &LogicalPlan) -> Result<Vec<SortExpr>> {
    let (asc, nulls_first) = keys.first().map_or((true, false), |key| (key.asc, key.nulls_first));
    for index in total_order(input)? {
        let column = Expr::Column(Column::from(input.schema().qualified_field(index)));
        if !keys.iter().any(|key| key.expr == column) {
            keys.push(column.sort(asc, nulls_first));
        }
    }
    Ok(keys)
}

/// Completes the orders of the functions in an expression to total ones.
///
/// # Errors
/// If rows cannot be ordered by one of the columns of the plan.
fn totally_ordered(expr: Expr, input: &LogicalPlan) -> Result<Transformed<Expr>> {
    /// Functions that have no frame.
    const PLACES: [&str; 4] = ["row_number", "ntile", "lag", "lead"];
    const AGGREGATES: [&str; 4] = ["first_value", "last_value", "nth_value", "array_agg"];
    expr.transform_up(|mut part| {
        match &mut part {
            Expr::WindowFunction(call) => {
                let frame = &call.params.window_frame;
                let is_whole = frame.start_bound.is_unbounded() && frame.end_bound.is_unbounded();
                let moves = frame.units == WindowFrameUnits::Rows && !is_whole;
                let is_place = PLACES.contains(&call.fun.name());
                if is_place || moves && !RANKS.contains(&call.fun.name()) {
                    if is_place {
                        // What they do not read may be a RANGE with an offset, beside which there is one key only.
                        call.params.window_frame = WindowFrame::new(Some(false));
                    }
                    call.params.order_by = ordered_further(std::mem::take(&mut call.params.order_by), input)?;
                    return Ok(Transformed::yes(part));
                }
            }
            Expr::AggregateFunction(call) if AGGREGATES.contains(&call.func.name()) => {
                call.params.order_by = ordered_further(std::mem::take(&mut call.params.order_by), input)?;
                return Ok(Transformed::yes(part));
            }
            _ => {}
        }
        Ok(Transformed::no(part))
    })
}

/// Functions that count equal rows as one.
const RANKS: [&str; 4] = ["rank", "dense_rank", "percent_rank", "cume_dist"];
