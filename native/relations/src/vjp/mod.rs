//! Gradients by row: reverse mode over the plan.
//!
//! A scalar subquery is a function of every cell of the relations that it reads. Its derivative by each row's cell of one column
//! is swept down from its value: the plan below is cut into *segments*, in which every row comes from one row of each leaf (joins,
//! filters, projections), and *residuals* between them (groups, windows, limits). Cotangents go through a segment row by row, and from a
//! segment to a leaf as sums over the leaf's rows.
//!
//! `row_ids` numbers the rows of the relation in which the column originates, and `nodes` finds what reads them. `linearize` makes
//! *segments* of plans, whose rows still have what a sweep reads (`segment`), and `residuals` of what lies between segments, computed once. There
//! is a file for each kind of node, under the name that it has in forward mode, which makes the segment of the node. `cotangents` has the
//! cotangents of columns and of rows, `contraction` those that are sums of products over a join, of which `sides` and
//! `factors` find the two factors, and `sweep` carries them from the value
//! to the variable.

mod adjoint;
mod aggregate;
mod contraction;
mod correlated;
mod cotangents;
mod distinct;
mod expressions;
mod factors;
mod filter;
mod grouping_sets;
mod join;
mod linear;
mod linearize;
mod nodes;
mod projection;
mod recomputed;
mod recursive_query;
mod residuals;
mod row_ids;
mod segment;
mod sides;
mod subquery_alias;
mod sweep;
mod table_scan;
mod union;
mod unnest;
mod window;

use datafusion_common::{Result, plan_err};
use datafusion_expr::LogicalPlan;
use datafusion_expr::logical_plan::Subquery;

use crate::shared_relation::IterationsNode;
use crate::vocabulary::names::Names;
use crate::vocabulary::nodes::{format_node, non_query_nodes};
pub use contraction::{as_contraction, isolate_contraction};
pub use correlated::{correlated, with_joins, with_joins_in_relation, with_joins_of};
pub use cotangents::RowCotangents;
use linearize::SegmentBuilder;
pub use linearize::Values;
use nodes::Node;
pub use recomputed::read_recomputed;
pub use residuals::Residuals;
pub use row_ids::{Reference, RowVariable};
pub use segment::{Segment, joined};
pub use sides::in_two_sides;
pub use sweep::{Sweeping, check_float, gradients};

/// Returns the segment of the one row that a scalar subquery is, none if it does not read the rows of a variable.
///
/// # Errors
/// If gradients by row cannot pass through a node of it.
pub fn value(
    subquery: &Subquery,
    variables: &[RowVariable],
    residuals: &mut Residuals,
    names: &mut Names,
    sweeping: Sweeping,
) -> Result<Option<Segment>> {
    let mut builder = SegmentBuilder::new(names, variables, residuals, rule);
    builder.contracts = sweeping.contracts;
    builder.value(subquery)
}

/// Returns the rows of a query, each of which has values that vary for themselves, none if it does not read the rows of a variable.
///
/// # Errors
/// If gradients by row cannot pass through a node of it.
pub fn values(
    query: &LogicalPlan,
    variables: &[RowVariable],
    residuals: &mut Residuals,
    names: &mut Names,
    sweeping: Sweeping,
) -> Result<Option<Values>> {
    let mut builder = SegmentBuilder::new(names, variables, residuals, rule);
    builder.contracts = sweeping.contracts;
    builder.values(query)
}

/// Returns what each kind of node is in reverse mode, if its rows depend on those of a variable.
fn rule(builder: &mut SegmentBuilder, node: Node, plan: &LogicalPlan) -> Result<Segment> {
    match plan {
        LogicalPlan::Projection(projection) => projection::projection(builder, node, projection),
        LogicalPlan::Filter(filter) => filter::filter(builder, node, filter),
        LogicalPlan::Sort(sort) => filter::sort(builder, node, sort),
        LogicalPlan::Limit(limit) => filter::limit(builder, node, limit),
        LogicalPlan::Repartition(repartition) => builder.segment(&repartition.input),
        LogicalPlan::Subquery(Subquery { subquery, .. }) => builder.segment(subquery),
        LogicalPlan::SubqueryAlias(alias) => subquery_alias::subquery_alias(builder, node, alias),
        LogicalPlan::Join(join) => join::join(builder, node, join),
        LogicalPlan::Union(union) => union::union(builder, union),
        LogicalPlan::Distinct(distinct) => distinct::distinct(builder, node, distinct),
        LogicalPlan::Aggregate(aggregate) => aggregate::aggregate(builder, node, aggregate),
        LogicalPlan::Window(window) => window::window(builder, node, window),
        LogicalPlan::Unnest(unnest) => unnest::unnest(builder, unnest),
        LogicalPlan::TableScan(_) => match table_scan::table_scan(builder, node, plan)? {
            Some(segment) => Ok(segment),
            None => refused(plan),
        },
        LogicalPlan::RecursiveQuery(query) => recursive_query::recursive_query(builder, node, query),
        LogicalPlan::Extension(_) if let Some(iterations) = IterationsNode::from_node(plan) => plan_err!(
            "{} is a recursive query whose derivative by row is differentiated by row, which xql-ffi does not do. \
             Write its iterations as CTEs, one after the other",
            iterations.query()
        ),
        LogicalPlan::Extension(_) | LogicalPlan::EmptyRelation(_) | LogicalPlan::Values(_) | non_query_nodes!() => {
            refused(plan)
        }
    }
}

fn refused(plan: &LogicalPlan) -> Result<Segment> {
    plan_err!("gradients by row cannot pass through {}", format_node(plan))
}
