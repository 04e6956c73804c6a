//! Pulls a column of a node up to the plan above it.

use datafusion_common::{Column, Result, internal_err, plan_err};
use datafusion_expr::{Distinct, DistinctOn, Expr, LogicalPlan, Projection, RecursiveQuery, Union, lit};
use std::sync::Arc;

use super::recursion::{Term, WorkTable};
use super::union::widened_union;
use crate::vocabulary::expressions::unaliased;
use crate::vocabulary::names::{Names, columns};
use crate::vocabulary::nodes::non_query_nodes;
use crate::vocabulary::origin::{Origin, origin};

/// Provides the new column at a node on the way down to the origin of column number `index`. Returns `None` to descend
/// further.
pub type Take<'t> = &'t mut dyn FnMut(&LogicalPlan, usize, &mut Names) -> Result<Option<(LogicalPlan, Column)>>;

/// Adds a column to a plan, and returns it: the one that `take` provides at a node on the way to the origin of column
/// number `index`.
///
/// ```text
/// SubqueryAlias: m                       SubqueryAlias: m
///   Projection: t.x                ->      Projection: t.x, ∂cell
///     TableScan: t                           WindowAggr: windowExpr=[[row_number() AS ∂cell]]
///                                              TableScan: t
/// ```
#[recursive::recursive]
pub fn pull_up_column(plan: LogicalPlan, index: usize, names: &mut Names, take: Take) -> Result<(LogicalPlan, Column)> {
    if let Some(taken) = take(&plan, index, names)? {
        return Ok(taken);
    }
    let Origin::Below(sources) = origin(&plan, index)? else {
        return internal_err!("there is nothing to lift in {}", plan.display());
    };
    if let LogicalPlan::RecursiveQuery(query) = plan {
        return through_iterations(query, index, names, take);
    }
    let mut inputs: Vec<_> = plan.inputs().into_iter().cloned().collect();
    let mut taken = vec![];
    for (number, below) in sources {
        let Some(place) = inputs.get_mut(number) else { continue };
        let (input, column) = pull_up_column(std::mem::take(place), below, names, take)?;
        *place = input;
        taken.push(column);
    }
    if let LogicalPlan::Union(union) = &plan {
        return tagged(union, inputs, taken, names);
    }
    let Some(column) = taken.pop() else { return internal_err!("{} has no input", plan.display()) };
    above(plan, inputs, column, names)
}

/// Returns a node over inputs of which one has got this column, with the column passed on.
fn above(
    plan: LogicalPlan,
    mut inputs: Vec<LogicalPlan>,
    column: Column,
    names: &mut Names,
) -> Result<(LogicalPlan, Column)> {
    let exprs = plan.expressions();
    Ok(match &plan {
        LogicalPlan::Projection(_) => {
            let (exprs, column) = pass_on(exprs, column, names);
            let input = inputs.pop().unwrap_or_default();
            (LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(input))?), column)
        }
        LogicalPlan::Distinct(Distinct::On(on)) => {
            let (exprs, column) = pass_on(on.select_expr.clone(), column, names);
            let input = Arc::new(inputs.pop().unwrap_or_default());
            let on = DistinctOn::try_new(on.on_expr.clone(), exprs, on.sort_expr.clone(), input)?;
            (LogicalPlan::Distinct(Distinct::On(on)), column)
        }
        LogicalPlan::SubqueryAlias(alias) => {
            let column = Column::new(Some(alias.alias.clone()), column.name);
            (plan.with_new_exprs(exprs, inputs)?, column)
        }
        LogicalPlan::Unnest(unnest) => {
            let input = inputs.pop().unwrap_or_default();
            let (lists, options) = (unnest.exec_columns.clone(), unnest.options.clone());
            (datafusion_expr::builder::unnest_with_options(input, lists, options)?, column)
        }
        LogicalPlan::Filter(_)
        | LogicalPlan::Sort(_)
        | LogicalPlan::Limit(_)
        | LogicalPlan::Repartition(_)
        | LogicalPlan::Subquery(_)
        | LogicalPlan::Window(_)
        | LogicalPlan::Join(_) => (plan.with_new_exprs(exprs, inputs)?, column),
        LogicalPlan::Aggregate(_)
        | LogicalPlan::Distinct(Distinct::All(_))
        | LogicalPlan::Union(_)
        | LogicalPlan::RecursiveQuery(_)
        | LogicalPlan::TableScan(_)
        | LogicalPlan::Values(_)
        | LogicalPlan::EmptyRelation(_)
        | LogicalPlan::Extension(_)
        | non_query_nodes!() => {
            return plan_err!(
                "xql-ffi cannot tell the rows of the variable apart behind {}, on their way to a window. Write jvp(..., 1), \
                 in which all of them move, or pass on a column that tells them apart, and PARTITION BY it",
                plan.display()
            );
        }
    })
}

/// Returns a recursive query that passes a column of its first rows on through every iteration, as it does the variable.
///
/// ```text
/// RecursiveQuery: is_distinct=false               RecursiveQuery: is_distinct=false
///   Projection: 0 AS s, p.w                         Projection: s, w, ∂cell AS ∂cell #2
///     TableScan: p                         ->         Projection: 0 AS s, p.w, ∂cell
///   Projection: o.s + 1, o.w                            WindowAggr: windowExpr=[[row_number() AS ∂cell]]
///     TableScan: o                                        TableScan: p
///                                                   Projection: o.s + 1, o.w, o.∂cell #2
///                                                     TableScan: o projection=[s, w, ∂cell #2]
/// ```
fn through_iterations(
    query: RecursiveQuery,
    index: usize,
    names: &mut Names,
    take: Take,
) -> Result<(LogicalPlan, Column)> {
    if query.is_distinct {
        return plan_err!(
            "{} is a recursive query with UNION, which compares whole rows, so a column that tells the rows of a variable \
             apart cannot pass through it. Write UNION ALL",
            query.name
        );
    }
    let (start, column) = pull_up_column(query.static_term.as_ref().clone(), index, names, take)?;
    let name = names.part("cell");
    let field = start.schema().field(start.schema().index_of_column(&column)?).as_ref().clone().with_name(&name);
    let table = WorkTable::widened(&query, [Arc::new(field)]);
    let start = term(&query.static_term, start, column);
    let (step, column) = pull_up_column(query.recursive_term.as_ref().clone(), index, names, &mut |node, _, _| {
        let LogicalPlan::TableScan(scan) = node else { return Ok(None) };
        if !table.is_read_by(scan) {
            return Ok(None);
        }
        let column = Column::new(Some(scan.table_name.clone()), name.clone());
        Ok(Some((LogicalPlan::TableScan(table.rescan(scan.clone(), [0])?), column)))
    })?;
    let step = term(&query.recursive_term, step, column);
    Ok((table.query(start, step)?, Column::new_unqualified(name)))
}

/// Returns a term of a recursive query that has got a column.
fn term(before: &LogicalPlan, plan: LogicalPlan, column: Column) -> Term {
    Term { before: Arc::clone(before.schema()), plan, further: vec![Expr::Column(column)] }
}

/// Returns what a node computes, with a column of its input, and what that is called there.
fn pass_on(mut computed: Vec<Expr>, column: Column, names: &mut Names) -> (Vec<Expr>, Column) {
    let passed = Expr::Column(column);
    if let Some(known) = computed.iter().find(|known| *unaliased(known) == passed) {
        let (table, name) = known.qualified_name();
        return (computed, Column::new(table, name));
    }
    let Expr::Column(column) = &passed else { return (computed, Column::new_unqualified("")) };
    let name = if names.has_given(&column.name) { column.name.clone() } else { names.part(&column.name) };
    computed.push(passed.clone().alias(name.clone()));
    (computed, Column::new_unqualified(name))
}

/// Returns a union of inputs with numbers that are none in two of them.
fn tagged(
    union: &Union,
    inputs: Vec<LogicalPlan>,
    numbers: Vec<Column>,
    names: &mut Names,
) -> Result<(LogicalPlan, Column)> {
    let name = names.part("cell");
    let count = inputs.len() as u64;
    let mut widened = vec![];
    for (((input, before), number), tag) in inputs.into_iter().zip(&union.inputs).zip(numbers).zip(0_u64..) {
        let mut exprs = columns(before.schema());
        let number = Expr::Column(number) * lit(count) + lit(tag);
        exprs.push(number.alias(name.clone()));
        widened.push(Arc::new(LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(input))?)));
    }
    Ok((widened_union(union, widened)?, Column::new_unqualified(name)))
}
