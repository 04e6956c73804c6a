//! Forward mode: tangents of the columns of a plan, propagated from where the variables originate up to a node with
//! calls.
//!
//! `propagate` walks down from a node with the columns whose tangents are wanted, and returns with a plan that has the
//! tangents as further columns. There is a file for each kind of node: it requests the tangents of its inputs that its
//! own columns need, and computes the tangents of its columns from them.

mod aggregate;
mod dependence;
mod direction;
mod distinct;
mod equal_tangents;
mod expressions;
mod filter;
mod hoist_volatile;
mod iterations;
mod join;
mod projection;
mod propagate;
mod recursive_query;
mod row_local;
mod shared_tangents;
mod subquery_alias;
mod swept_query;
mod table_scan;
mod union;
mod unnest;
mod window;

use datafusion_common::{Result, plan_err};
use datafusion_expr::LogicalPlan;

use crate::shared_relation::IterationsNode;
use crate::vocabulary::names::Names;
use crate::vocabulary::nodes::{format_node, non_query_nodes};
pub use direction::{Direction, Variable};
pub use hoist_volatile::VolatileColumns;
pub use propagate::{ColumnRequest, Perturb, WithTangents};
use propagate::{NodeRequest, Propagation};
pub use row_local::is_plain;
pub use shared_tangents::{SharedTangents, VariableOrigin};
pub use swept_query::SweptQuery;
pub use window::cells::is_one_cell;

/// Propagates tangents up a plan: returns the plan with the tangents that each direction requests.
pub fn propagate(
    plan: LogicalPlan,
    requests: Vec<ColumnRequest>,
    directions: Vec<Direction>,
    names: &mut Names,
    shared: &mut SharedTangents,
) -> Result<WithTangents> {
    Propagation::new(names, shared, directions, rule).propagate(plan, requests)
}

/// Propagates tangents through a node, by the rule for its kind.
fn rule(propagation: &mut Propagation, plan: LogicalPlan, requests: &[NodeRequest]) -> Result<WithTangents> {
    match plan {
        LogicalPlan::Projection(projection) => projection::projection(propagation, projection, requests),
        LogicalPlan::Filter(_)
        | LogicalPlan::Sort(_)
        | LogicalPlan::Limit(_)
        | LogicalPlan::Repartition(_)
        | LogicalPlan::Subquery(_) => filter::same_columns(propagation, &plan, requests),
        LogicalPlan::SubqueryAlias(alias) => subquery_alias::subquery_alias(propagation, alias, requests),
        LogicalPlan::Join(join) => join::join(propagation, join, requests),
        LogicalPlan::Union(union) => union::union(propagation, &union, requests),
        LogicalPlan::Distinct(distinct) => distinct::distinct(propagation, distinct, requests),
        LogicalPlan::Aggregate(aggregate) => aggregate::aggregate(propagation, aggregate, requests),
        LogicalPlan::Window(window) => window::window(propagation, window, requests),
        LogicalPlan::Unnest(unnest) => unnest::unnest(propagation, &unnest, requests),
        LogicalPlan::RecursiveQuery(query) => recursive_query::recursive_query(propagation, query, requests),
        LogicalPlan::TableScan(scan) => table_scan::table_scan(propagation, scan, requests),
        LogicalPlan::Values(_) | LogicalPlan::EmptyRelation(_) => Ok(WithTangents::constant(plan, requests.len())),
        LogicalPlan::Extension(_) if IterationsNode::from_node(&plan).is_some() => {
            iterations::iterations(propagation, plan, requests)
        }
        LogicalPlan::Extension(_) | non_query_nodes!() => {
            plan_err!("derivatives by {} cannot pass through {}", propagation.variable_of(requests), format_node(&plan))
        }
    }
}
