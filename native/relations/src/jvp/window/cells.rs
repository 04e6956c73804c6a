//! Numbers that tell which rows of a window have the same value of the variable, from the same row of its relation.
//!
//! The rows of the relation are numbered where the variable originates, and the numbers are pulled up to the window
//! that needs them. Below a group, which makes one of equal values, they are numbered by value.

use datafusion_common::{Column, Result, ScalarValue};
use datafusion_expr::expr::{Sort, WindowFunction};
use datafusion_expr::utils::grouping_set_to_exprlist;
use datafusion_expr::{
    Distinct, Expr, JoinType, LogicalPlan, Window, WindowFrame, WindowFrameBound, WindowFrameUnits,
    WindowFunctionDefinition,
};
use datafusion_functions_window::rank::dense_rank_udwf;
use datafusion_functions_window::row_number::row_number_udwf;
use std::sync::Arc;

use crate::plan::pull_up_column::pull_up_column;
use crate::vocabulary::names::Names;
use crate::vocabulary::nodes::{has_one_row_at_most, non_query_nodes};
use crate::vocabulary::origin::{Origin, origin};

/// Returns the plan with the number of the cell that column number `index` has in a row.
pub fn number_cells(plan: LogicalPlan, index: usize, names: &mut Names) -> Result<(LogicalPlan, Column)> {
    pull_up_column(plan, index, names, &mut |node, index, names| {
        if let LogicalPlan::Window(window) = node
            && index < window.input.schema().fields().len()
            && let Some(wanted) = numbering(&window.input, index)?
        {
            // Another derivative has numbered them.
            let known = window.window_expr.iter().find_map(|known| match known {
                Expr::Alias(alias) if names.has_given(&alias.name) && *alias.expr == wanted => Some(alias.name.clone()),
                _ => None,
            });
            return Ok(known.map(|name| (node.clone(), Column::new_unqualified(name))));
        }
        match numbering(node, index)? {
            Some(numbering) => with_column(node.clone(), numbering, names).map(Some),
            None => Ok(None),
        }
    })
}

/// Returns the plan with the number of the value that a column has in a row.
pub fn number_cells_by_value(plan: LogicalPlan, index: usize, names: &mut Names) -> Result<(LogicalPlan, Column)> {
    let numbering = by_value(&plan, index);
    with_column(plan, numbering, names)
}

/// Returns what numbers the cells of a column, if it originates in a node.
fn numbering(node: &LogicalPlan, index: usize) -> Result<Option<Expr>> {
    if matches!(node, LogicalPlan::Aggregate(_) | LogicalPlan::Distinct(Distinct::All(_))) && !is_origin(node, index)? {
        return Ok(Some(by_value(node, index)));
    }
    let mut row_number = WindowFunction::new(WindowFunctionDefinition::WindowUDF(row_number_udwf()), vec![]);
    // One by which DataFusion need not wait for the last row.
    row_number.params.window_frame = WindowFrame::new_bounds(
        WindowFrameUnits::Rows,
        WindowFrameBound::Preceding(ScalarValue::UInt64(None)),
        WindowFrameBound::CurrentRow,
    );
    Ok(is_origin(node, index)?.then(|| Expr::from(row_number)))
}

fn by_value(node: &LogicalPlan, index: usize) -> Expr {
    let mut rank = WindowFunction::new(WindowFunctionDefinition::WindowUDF(dense_rank_udwf()), vec![]);
    let column = Column::from(node.schema().qualified_field(index));
    rank.params.order_by = vec![Sort::new(Expr::Column(column), true, false)];
    rank.params.window_frame = WindowFrame::new(Some(false));
    Expr::from(rank)
}

fn is_origin(node: &LogicalPlan, index: usize) -> Result<bool> {
    Ok(origin(node, index)? == Origin::Here)
}

fn with_column(plan: LogicalPlan, numbering: Expr, names: &mut Names) -> Result<(LogicalPlan, Column)> {
    let name = names.part("cell");
    let window = Window::try_new(vec![numbering.alias(name.clone())], Arc::new(plan))?;
    Ok((LogicalPlan::Window(window), Column::new_unqualified(name)))
}

/// Returns whether no two rows are known to have the same cell of column number `index`.
#[recursive::recursive]
pub fn has_cells_of_its_own(plan: &LogicalPlan, index: usize) -> Result<bool> {
    let Origin::Below(sources) = origin(plan, index)? else { return Ok(true) };
    let repeats = match plan {
        LogicalPlan::Join(join) => {
            let other = if sources.first().is_some_and(|(input, _)| *input == 0) { &join.right } else { &join.left };
            let only_tests = matches!(
                join.join_type,
                JoinType::LeftSemi
                    | JoinType::LeftAnti
                    | JoinType::LeftMark
                    | JoinType::RightSemi
                    | JoinType::RightAnti
                    | JoinType::RightMark
            );
            !only_tests && !has_one_row_at_most(other)
        }
        LogicalPlan::Aggregate(aggregate) => {
            let sets = matches!(aggregate.group_expr.as_slice(), [Expr::GroupingSet(_)]);
            sets || grouping_set_to_exprlist(&aggregate.group_expr)?.len() > 1
        }
        LogicalPlan::Distinct(Distinct::All(input)) => input.schema().fields().len() > 1,
        LogicalPlan::Unnest(_) | LogicalPlan::RecursiveQuery(_) => true,
        LogicalPlan::Projection(_)
        | LogicalPlan::Filter(_)
        | LogicalPlan::Window(_)
        | LogicalPlan::Sort(_)
        | LogicalPlan::Repartition(_)
        | LogicalPlan::Union(_)
        | LogicalPlan::TableScan(_)
        | LogicalPlan::EmptyRelation(_)
        | LogicalPlan::Subquery(_)
        | LogicalPlan::SubqueryAlias(_)
        | LogicalPlan::Limit(_)
        | LogicalPlan::Values(_)
        | LogicalPlan::Distinct(Distinct::On(_))
        | LogicalPlan::Extension(_)
        | non_query_nodes!() => false,
    };
    if repeats {
        return Ok(false);
    }
    if matches!(plan, LogicalPlan::Aggregate(_) | LogicalPlan::Distinct(Distinct::All(_))) {
        return Ok(true);
    }
    let inputs = plan.inputs();
    for (input, below) in sources {
        if !inputs.get(input).map_or(Ok(false), |input| has_cells_of_its_own(input, below))? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns whether column number `index` has one cell at most, so that all rows have it.
#[recursive::recursive]
pub fn is_one_cell(plan: &LogicalPlan, index: usize) -> Result<bool> {
    let Origin::Below(sources) = origin(plan, index)? else {
        return Ok(has_one_row_at_most(plan));
    };
    match (sources.as_slice(), plan.inputs()) {
        ([(input, below)], inputs) => inputs.get(*input).map_or(Ok(false), |input| is_one_cell(input, *below)),
        _ => Ok(false),
    }
}
