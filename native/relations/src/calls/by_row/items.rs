//! Queries in FROM that are computed from the relation of a variable, which is in FROM as well.
//!
//! ```sql
//! WITH h AS (SELECT d.k, SUM(w.val * d.x) AS val FROM w JOIN d ON d.j = w.j GROUP BY d.k)
//! SELECT h.k, w.j, grad(h.val, w.val) FROM h CROSS JOIN w           -- in each row by this row's cell
//! ```

use datafusion_common::{Result, plan_err};
use datafusion_expr::{Expr, LogicalPlan, SubqueryAlias};
use xql_autodiff::vocabulary::columns::columns_followed;

use crate::shared_relation::SharedRelation;
use crate::vocabulary::decorrelated::decorrelated;
use crate::vocabulary::identity::{Relation, is_same};
use crate::vocabulary::nodes::{any_node_behind, format_node};
use crate::vocabulary::origin::{Origin, origin};
use crate::vocabulary::source::{Source, sources_of};

/// A query in FROM.
struct Item<'p> {
    alias: &'p SubqueryAlias,
    /// The path from the node, as numbers of inputs.
    path: Vec<usize>,
}

/// Adds the queries in FROM of the node above a plan.
fn add_items<'p>(plan: &'p LogicalPlan, path: &mut Vec<usize>, items: &mut Vec<Item<'p>>) {
    match plan {
        LogicalPlan::SubqueryAlias(alias) => items.push(Item { alias, path: path.clone() }),
        // A decorrelated subquery is no query in FROM.
        LogicalPlan::Join(join) if decorrelated(join).is_some() => {
            path.push(0);
            add_items(&join.left, path, items);
            path.pop();
        }
        LogicalPlan::Join(_)
        | LogicalPlan::Filter(_)
        | LogicalPlan::Sort(_)
        | LogicalPlan::Limit(_)
        // ORDER BY stands above the select list: SELECT h.k FROM h CROSS JOIN w ORDER BY grad(h.val, w.val)
        | LogicalPlan::Projection(_)
        | LogicalPlan::Window(_) => {
            for (number, input) in plan.inputs().into_iter().enumerate() {
                path.push(number);
                add_items(input, path, items);
                path.pop();
            }
        }
        _ => {}
    }
}

/// Returns the queries in FROM that an expression reads and that are computed from the relation of a variable beside them. None if the
/// expression depends on the variable itself: then the derivative is by that, of which each reference is a variable of its own.
///
/// # Errors
/// If a plan cannot be gone through, or one of several such queries is computed by iterations, which would count as constant.
pub fn computed_beside<'p>(
    expression: &Expr,
    input: &'p LogicalPlan,
    variable: &Source,
    relation: &Relation,
) -> Result<Option<Vec<&'p SubqueryAlias>>> {
    let mut items = vec![];
    add_items(input, &mut vec![], &mut items);
    let mut found: Vec<&SubqueryAlias> = vec![];
    let mut iterated = None;
    for column in columns_followed(expression) {
        let Some(index) = input.schema().maybe_index_of_column(&column) else { continue };
        let sources = sources_of(input, index)?;
        let is_of = |item: &Item, source: &Source| {
            source.path.len() >= item.path.len() && source.path.iter().rev().zip(&item.path).all(|(a, b)| a == b)
        };
        let has_variable = |item: &Item| is_of(item, variable);
        for source in &sources {
            let is_beside_variable = source.path == variable.path && is_same(&source.origin, &variable.origin);
            let item = items.iter().find(|item| is_of(item, source));
            if is_beside_variable && source.position != variable.position {
                continue;
            }
            if is_beside_variable || item.is_some_and(has_variable) {
                return Ok(None);
            }
            let Some(Item { alias, .. }) = item else { continue };
            if !is_computed_from(alias, relation)? {
                continue;
            }
            if is_recursive(alias)? {
                iterated = Some(alias);
            } else if !found.iter().any(|known| known.alias == alias.alias) {
                found.push(alias);
            }
        }
    }
    if let (Some(iterated), Some(beside)) = (iterated, found.first()) {
        return plan_err!(
            "the derivative of {expression} is that of each row by {} as {} reads it too, and the iterations of {} have none for each of their \
             rows. Differentiate the rest alone",
            format_node(&relation.node),
            beside.alias,
            iterated.alias
        );
    }
    Ok(Some(found))
}

/// Returns whether a query is computed by iterations, which have no derivative for each of their rows.
fn is_recursive(alias: &SubqueryAlias) -> Result<bool> {
    any_node_behind(&alias.input, |node| Ok(matches!(node, LogicalPlan::RecursiveQuery(_))))
}

/// Returns whether a query is computed from a relation, and is not another name of it.
fn is_computed_from(alias: &SubqueryAlias, relation: &Relation) -> Result<bool> {
    let mut query = alias.input.as_ref();
    while let LogicalPlan::SubqueryAlias(below) = query {
        query = &below.input;
    }
    // LATERAL has a different query for each row of the left side.
    if matches!(query, LogicalPlan::Subquery(_)) {
        return Ok(false);
    }
    let rows = numbered_rows(query).map_or(query, |(rows, _)| rows);
    Ok(!is_same(rows, &relation.node) && relation.is_read_in(&alias.input)?)
}

/// Returns the scan of the numbered rows of a relation that a plan stands for, with how many columns these have. A projection stands for
/// them if it has all of these columns in their order.
fn numbered_rows(plan: &LogicalPlan) -> Option<(&LogicalPlan, usize)> {
    let LogicalPlan::Projection(projection) = plan else {
        let relation = SharedRelation::scanned_by(plan).filter(|relation| relation.is_numbered())?;
        return Some((plan, relation.plan().schema().fields().len()));
    };
    let is_passed_on = |index| origin(plan, index).is_ok_and(|origin| origin == Origin::Below(vec![(0, index)]));
    numbered_rows(&projection.input).filter(|(_, width)| (0..*width).all(is_passed_on))
}
