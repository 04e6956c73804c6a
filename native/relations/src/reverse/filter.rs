//! Nodes that keep rows of their input, or order them, and have its columns: filters, sorts and limits.

use datafusion_common::{Result, internal_err};
use datafusion_expr::logical_plan::Sort;
use datafusion_expr::{Expr, Filter, Limit, LogicalPlan, Projection};
use std::sync::Arc;
use xql_autodiff::vocabulary::columns::is_volatile;

use super::builder::RegionBuilder;
use super::contraction::{takes, with_condition};
use super::expressions::inside;
use super::nodes::Node;
use super::region::Region;

/// The rows that are kept have the cotangents. Which these are is taken as constant.
pub fn filter(builder: &mut RegionBuilder, node: Node, filter: &Filter) -> Result<Region> {
    let mut region = builder.region(&filter.input)?;
    let predicate = inside(builder, &mut region, &filter.predicate, filter.input.schema())?;
    region.plan = if builder.contracts && is_of_join(&region.plan, &predicate) {
        asked_of_join(region.plan, predicate.clone())?
    } else {
        LogicalPlan::Filter(Filter::try_new(predicate.clone(), Arc::new(region.plan))?)
    };
    region.single = false;
    if is_volatile(&predicate) { builder.stored(node, region) } else { Ok(region) }
}

/// Whether a condition of the rows of a region can be one of the join that they are of, in which sums of products are looked for.
fn is_of_join(plan: &LogicalPlan, condition: &Expr) -> bool {
    match plan {
        LogicalPlan::Join(join) => takes(join, condition),
        // A name is that of one column in all of the statement.
        LogicalPlan::Projection(Projection { input, .. }) => {
            condition.column_refs().into_iter().all(|column| input.schema().has_column(column))
                && is_of_join(input, condition)
        }
        _ => false,
    }
}

/// The rows with the condition as one of the join.
fn asked_of_join(plan: LogicalPlan, condition: Expr) -> Result<LogicalPlan> {
    match plan {
        LogicalPlan::Join(join) => Ok(LogicalPlan::Join(with_condition(join, condition)?)),
        LogicalPlan::Projection(Projection { expr, input, .. }) => {
            let below = asked_of_join(Arc::unwrap_or_clone(input), condition)?;
            Ok(LogicalPlan::Projection(Projection::try_new(expr, Arc::new(below))?))
        }
        other => internal_err!("{} is no join", other.display()),
    }
}

/// The first rows are kept, which might be others in another order of equal rows.
pub fn sort(builder: &mut RegionBuilder, node: Node, sort: &Sort) -> Result<Region> {
    let Sort { expr, input, fetch } = sort;
    let mut region = builder.region(input)?;
    let mut order = vec![];
    for sort in expr {
        order.push(sort.with_expr(inside(builder, &mut region, &sort.expr, input.schema())?));
    }
    region.plan = LogicalPlan::Sort(Sort { expr: order, input: Arc::new(region.plan), fetch: *fetch });
    region.single = region.single && fetch.is_none();
    let keeps_some = fetch.is_some() || expr.iter().any(|sort| is_volatile(&sort.expr));
    if keeps_some { builder.stored(node, region) } else { Ok(region) }
}

/// The rows that are kept might be others the second time.
pub fn limit(builder: &mut RegionBuilder, node: Node, limit: &Limit) -> Result<Region> {
    let mut region = builder.region(&limit.input)?;
    let input = Arc::new(region.plan);
    region.plan = LogicalPlan::Limit(Limit { skip: limit.skip.clone(), fetch: limit.fetch.clone(), input });
    region.single = false;
    builder.stored(node, region)
}
