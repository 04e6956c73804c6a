//! Which relation a column of a plan comes from, and what reads it.

use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_common::{Column, Result, plan_err};
use datafusion_expr::{Distinct, Expr, LogicalPlan};
use xql_autodiff::vocabulary::columns::columns_followed;

use super::identity::{Relation, is_same, is_unclear};
use super::nodes::{any_node_behind, common_scanned_by, non_query_nodes};
use super::origin::{Origin, origin, passed_on};

/// Where a column of a plan originates.
pub struct Source {
    /// The node that computes it, or the table that has it.
    pub origin: LogicalPlan,
    /// Its position there.
    pub position: usize,
    /// By which inputs one comes there, the last first: which reference to the origin it is.
    pub path: Vec<usize>,
}

/// Returns all places in which column number `index` of a plan originates: several for one of a UNION.
#[recursive::recursive]
pub fn sources_of(plan: &LogicalPlan, index: usize) -> Result<Vec<Source>> {
    let Origin::Below(below) = origin(plan, index)? else {
        return Ok(vec![Source { origin: plan.clone(), position: index, path: vec![] }]);
    };
    let inputs = plan.inputs();
    let mut sources = vec![];
    for (number, below) in below {
        let Some(input) = inputs.get(number) else { continue };
        for mut source in sources_of(input, below)? {
            source.path.push(number);
            sources.push(source);
        }
    }
    Ok(sources)
}

/// Returns all nodes in which column number `index` of a plan originates.
pub fn origins_of(plan: &LogicalPlan, index: usize) -> Result<Vec<LogicalPlan>> {
    Ok(sources_of(plan, index)?.into_iter().map(|source| source.origin).collect())
}

/// Returns where column number `index` of a plan originates. A column of several tables has no such place.
pub fn source_of(plan: &LogicalPlan, index: usize) -> Result<Option<Source>> {
    let mut sources = sources_of(plan, index)?;
    Ok(sources.pop().filter(|_| sources.is_empty()))
}

/// Returns whether one of the queries that an expression reads reads a relation.
pub fn reads(queries: &[&LogicalPlan], relation: &Relation) -> Result<bool> {
    for query in queries {
        if relation.is_read_in(query)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns whether one of the queries may have a value that is computed from a column of a relation, and not only from the others.
/// Conditions take none: which rows there are is constant.
pub fn takes_values(queries: &[&LogicalPlan], relation: &LogicalPlan, position: usize) -> Result<bool> {
    for query in queries {
        if is_from(query, 0, (relation, position))? || computes_from(query, relation, position)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns whether a column of a plan is that of a relation at a position, as it is.
fn is_from(plan: &LogicalPlan, index: usize, (relation, position): (&LogicalPlan, usize)) -> Result<bool> {
    let sources = sources_of(plan, index)?;
    Ok(sources.iter().any(|source| source.position == position && is_same(&source.origin, relation)))
}

/// Returns whether a query may compute a value from a column of a relation, rather than pass it on.
pub fn computes_from(query: &LogicalPlan, relation: &LogicalPlan, position: usize) -> Result<bool> {
    let mut takes = false;
    query.apply_with_subqueries(|node| {
        if is_same(node, relation) {
            return Ok(TreeNodeRecursion::Jump);
        }
        let Some(exprs) = computing(node) else {
            takes = true;
            return Ok(TreeNodeRecursion::Stop);
        };
        for input in node.inputs() {
            let computed = exprs.iter().filter(|expr| passed_on(expr, input.schema()).is_none());
            for column in computed.flat_map(|expr| columns_followed(expr)) {
                if let Some(index) = input.schema().maybe_index_of_column(&column) {
                    takes = takes || is_from(input, index, (relation, position))?;
                }
            }
        }
        Ok(if takes { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(takes)
}

/// Returns the expressions by which a node computes columns, none if it computes them otherwise.
fn computing(node: &LogicalPlan) -> Option<Vec<&Expr>> {
    match node {
        LogicalPlan::Projection(projection) => Some(projection.expr.iter().collect()),
        LogicalPlan::Aggregate(aggregate) => Some(aggregate.group_expr.iter().chain(&aggregate.aggr_expr).collect()),
        LogicalPlan::Window(window) => Some(window.window_expr.iter().collect()),
        // A CTE that several places read has more behind it.
        LogicalPlan::TableScan(_) if common_scanned_by(node).is_some() => None,
        LogicalPlan::TableScan(_)
        | LogicalPlan::SubqueryAlias(_)
        | LogicalPlan::Filter(_)
        | LogicalPlan::Sort(_)
        | LogicalPlan::Limit(_)
        | LogicalPlan::Join(_)
        | LogicalPlan::Union(_)
        | LogicalPlan::Repartition(_)
        | LogicalPlan::Distinct(Distinct::All(_))
        | LogicalPlan::EmptyRelation(_)
        | LogicalPlan::Values(_) => Some(vec![]),
        LogicalPlan::Distinct(Distinct::On(_))
        | LogicalPlan::Subquery(_)
        | LogicalPlan::Unnest(_)
        | LogicalPlan::RecursiveQuery(_)
        | LogicalPlan::Extension(_)
        | non_query_nodes!() => None,
    }
}

/// Refuses a query that reads a table of which nobody can tell whether it is the one that was meant.
pub fn check_is_clear(queries: &[&LogicalPlan], relation: &LogicalPlan) -> Result<()> {
    for query in queries {
        if any_node_behind(query, |node| Ok(is_unclear(node, relation)))? {
            return plan_err!(
                "{} is read through a view, and its catalog makes it anew for each reader, so that xql-ffi cannot tell whether it is \
                 the same table. Register the table itself with the session, or read it without the view",
                relation.display()
            );
        }
    }
    Ok(())
}

/// Refuses a query that says the same as a relation by another name, where only a derived table would be the relation and
/// nobody can tell whether it is one.
pub fn check_is_named(queries: &[&LogicalPlan], relation: &Relation) -> Result<()> {
    for query in queries {
        if relation.is_unclear_in(query)? {
            return plan_err!(
                "the derivative by the rows of {} reads a query of the same text by another name, and the plan does not say whether both \
                 are derived tables, which are one, or CTEs or views, which are two. Write the query once, WITH q AS (...), read q in both \
                 places, and give no derived table the name q",
                relation.node.display()
            );
        }
        if relation.is_rebuilt_in(query)? {
            return plan_err!(
                "DataFusion has made {} anew for each reader, as it does where it puts values in the place of parameters, so that xql-ffi \
                 cannot tell whether the derivative is by the same rows. Keep the rows in a table, or write the values in the statement",
                relation.node.display()
            );
        }
    }
    Ok(())
}

/// Returns a direction in which the cells of a variable move, over the columns that stand beside it where it originates.
pub fn beside(direction: &Expr, variable: &Column, input: &LogicalPlan) -> Result<Expr> {
    let source = |column: &Column| -> Result<Option<Source>> {
        let index = input.schema().maybe_index_of_column(column);
        Ok(index.map(|index| source_of(input, index)).transpose()?.flatten())
    };
    let origin = source(variable)?;
    let over_origin = direction.clone().transform_up(|part| {
        let Expr::Column(column) = &part else { return Ok(Transformed::no(part)) };
        match (&origin, source(column)?) {
            (Some(origin), Some(found)) if found.path == origin.path && is_same(&found.origin, &origin.origin) => {
                Ok(Transformed::yes(Expr::Column(Column::from(origin.origin.schema().qualified_field(found.position)))))
            }
            _ => plan_err!(
                "{column} does not stand beside {variable} where that comes from, and the rows mix: each cell of {variable} needs a \
                 direction. Put it into the relation of {variable}, or write the direction as a constant"
            ),
        }
    })?;
    Ok(over_origin.data)
}
