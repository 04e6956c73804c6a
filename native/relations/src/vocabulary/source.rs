//! Which relation a column of a plan comes from, and what reads it.

use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_common::{Column, Result, plan_err};
use datafusion_expr::{Expr, LogicalPlan};
use xql_autodiff::vocabulary::functions::stopped;

use super::identity::{Relation, is_same, is_unclear};
use super::nodes::any_node_behind;
use super::origin::{Origin, origin};

/// Where a column of a plan originates.
pub struct Source {
    /// The node that computes it, or the table that has it.
    pub origin: LogicalPlan,
    /// Its position there.
    pub position: usize,
    /// By which inputs one comes there, the last first: which reference to the origin it is.
    pub path: Vec<usize>,
}

/// All places in which column number `index` of a plan originates: several for one of a UNION.
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

/// All nodes in which column number `index` of a plan originates.
pub fn origins_of(plan: &LogicalPlan, index: usize) -> Result<Vec<LogicalPlan>> {
    Ok(sources_of(plan, index)?.into_iter().map(|source| source.origin).collect())
}

/// Where column number `index` of a plan originates. A column of several tables has no such place.
pub fn source_of(plan: &LogicalPlan, index: usize) -> Result<Option<Source>> {
    let mut sources = sources_of(plan, index)?;
    Ok(sources.pop().filter(|_| sources.is_empty()))
}

/// Whether a scalar subquery in an expression reads a relation.
pub fn reads(expression: &Expr, relation: &Relation) -> Result<bool> {
    let mut found = false;
    expression.apply(|part| {
        match part {
            Expr::ScalarSubquery(subquery) => found = found || relation.is_read_in(&subquery.subquery)?,
            part if stopped(part).is_some() => return Ok(TreeNodeRecursion::Jump),
            _ => {}
        }
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

/// The error for a scalar subquery in an expression that reads a table of which nobody can tell whether it is the one that was meant.
pub fn check_is_clear(expression: &Expr, relation: &LogicalPlan) -> Result<()> {
    expression.apply(|part| {
        if let Expr::ScalarSubquery(subquery) = part
            && any_node_behind(&subquery.subquery, |node| Ok(is_unclear(node, relation)))?
        {
            return plan_err!(
                "{} is read through a view, and its catalog makes it anew for each reader, so that xql-ffi cannot tell whether it is \
                 the same table. Register the table itself with the session, or read it without the view",
                relation.display()
            );
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

/// The error for a scalar subquery in an expression that says the same as a relation by another name, where only a derived table would be
/// the relation and nobody can tell whether it is one.
pub fn check_is_named(expression: &Expr, relation: &Relation) -> Result<()> {
    expression.apply(|part| {
        if let Expr::ScalarSubquery(subquery) = part
            && relation.is_unclear_in(&subquery.subquery)?
        {
            return plan_err!(
                "the derivative by the rows of {} reads a query of the same text by another name, and the plan does not say whether both \
                 are derived tables, which are one, or CTEs or views, which are two. Write the query once, WITH q AS (...), and read q in \
                 both places",
                relation.node.display()
            );
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

/// A direction in which the cells of a variable move, over the columns that stand beside it where it originates.
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
