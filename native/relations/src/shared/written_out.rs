//! Plans without shared relations, which compute each of them wherever it is read.

use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_common::{Column, Result, plan_err};
use datafusion_expr::expr_rewriter::NamePreserver;
use datafusion_expr::logical_plan::Sort;
use datafusion_expr::{
    Distinct, DistinctOn, Expr, ExprFunctionExt, Limit, LogicalPlan, LogicalPlanBuilder, Projection, RecursiveQuery,
    SortExpr, TableScan,
};
use datafusion_functions_window::expr_fn::row_number;
use std::sync::Arc;

use super::anew::{check_found_again, check_repeatable, ordered_further, total_order, totally_ordered};
use super::relation::SharedRelation;
use crate::vocabulary::nodes::any_node;
use crate::vocabulary::work_table::is_work_table;

/// The plan with every shared relation written out where it is read, so that it has nodes of DataFusion alone.
///
/// ```text
/// TableScan: ∂rows        ->      Projection: val, row_number() OVER (ORDER BY val) AS ∂row
///                                   TableScan: w
/// ```
///
/// # Errors
/// If a relation has other rows each time it is computed, or if it reads the rows of the last iteration of a recursive query, which
/// can be read once.
pub fn written_out(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    if !SharedRelation::is_scanned_in(&plan)? {
        return Ok(Transformed::no(plan));
    }
    Ok(Transformed::yes(Relations::default().written_out(plan)?))
}

/// Shared relations, each with what computes it.
#[derive(Default)]
struct Relations(Vec<(Arc<SharedRelation>, LogicalPlan)>);

impl Relations {
    #[recursive::recursive]
    fn written_out(&mut self, plan: LogicalPlan) -> Result<LogicalPlan> {
        plan.apply_with_subqueries(|node| {
            match node {
                LogicalPlan::Filter(filter) => check_found_again(&filter.predicate, &[&filter.input])?,
                LogicalPlan::Join(join) => {
                    let equal = join.on.iter().map(|(left, right)| left.clone().eq(right.clone()));
                    for condition in equal.chain(join.filter.clone()) {
                        check_found_again(&condition, &[&join.left, &join.right])?;
                    }
                }
                _ => {}
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        let written = plan.transform_up_with_subqueries(|node| match node {
            LogicalPlan::TableScan(scan) => match SharedRelation::scanned(&scan) {
                Some(relation) => Ok(Transformed::yes(self.computed(&relation, &scan)?)),
                None => Ok(Transformed::no(LogicalPlan::TableScan(scan))),
            },
            LogicalPlan::RecursiveQuery(query) => {
                check_reads(&query)?;
                Ok(Transformed::no(LogicalPlan::RecursiveQuery(query)))
            }
            node => Ok(Transformed::no(node)),
        })?;
        Ok(written.data)
    }

    /// What a scan of a relation reads.
    fn computed(&mut self, relation: &Arc<SharedRelation>, scan: &TableScan) -> Result<LogicalPlan> {
        let known = self.0.iter().find(|(known, _)| Arc::ptr_eq(known, relation)).map(|(_, plan)| plan.clone());
        let plan = match known {
            Some(plan) => plan,
            None => {
                let plan = self.rows_of(relation)?;
                self.0.push((Arc::clone(relation), plan.clone()));
                plan
            }
        };
        let exprs = scan.projected_schema.iter().enumerate().map(|(index, (table, field))| {
            let index = scan.projection.as_ref().map_or(index, |projection| projection[index]);
            let column = Expr::Column(Column::from(plan.schema().qualified_field(index)));
            column.alias_qualified(table.cloned(), field.name())
        });
        let exprs = exprs.collect();
        Ok(LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(plan))?))
    }

    /// The rows of a relation, with their numbers if it has them.
    fn rows_of(&mut self, relation: &SharedRelation) -> Result<LogicalPlan> {
        check_repeatable(relation.plan())?;
        let order = total_order(relation.plan())?;
        let plan = in_one_order(self.written_out(relation.plan().clone())?)?;
        let Some(row) = relation.columns().last().filter(|_| relation.is_numbered()) else { return Ok(plan) };
        let key = |index| Expr::Column(Column::from(plan.schema().qualified_field(index))).sort(true, false);
        let number = row_number().order_by(order.into_iter().map(key).collect()).build()?;
        LogicalPlanBuilder::from(plan).window([number.alias(row)])?.build()
    }
}

/// The plan with everything that depends on the order of rows in one order of them only.
fn in_one_order(plan: LogicalPlan) -> Result<LogicalPlan> {
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
            let names = NamePreserver::new(&node);
            node.map_expressions(|expr| {
                let name = names.save(&expr);
                let ordered = totally_ordered(expr, &input)?;
                Ok(if ordered.transformed { ordered.update_data(|expr| name.restore(expr)) } else { ordered })
            })
        }
        node => Ok(Transformed::no(node)),
    })?;
    Ok(ordered.data)
}

/// The rows of a plan in one order, that in which they are already if there is one.
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

/// Whether the rows of a plan are in the order of a sort below.
fn is_sorted(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Sort(_) => true,
        LogicalPlan::Projection(_) | LogicalPlan::SubqueryAlias(_) | LogicalPlan::Filter(_) | LogicalPlan::Limit(_) => {
            plan.inputs().into_iter().all(is_sorted)
        }
        _ => false,
    }
}

/// Refuses a recursive term that reads the rows of the last iteration several times.
fn check_reads(query: &RecursiveQuery) -> Result<()> {
    let mut reads = 0;
    any_node(&query.recursive_term, |node| {
        let is_read = matches!(node, LogicalPlan::TableScan(scan) if is_work_table(scan, &query.name));
        reads += usize::from(is_read);
        Ok(false)
    })?;
    if reads > 1 {
        return plan_err!(
            "the derivative reads the rows of the last iteration of {} {reads} times, which can be read once while \
             xql.share_relations is false: write one step as a statement of its own, keep its rows in a table, and repeat it",
            query.name
        );
    }
    Ok(())
}
