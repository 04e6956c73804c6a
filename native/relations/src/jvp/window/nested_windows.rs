//! The window functions below a window that its arguments are computed from.

use datafusion_common::{Column, Result};
use datafusion_expr::{Distinct, Expr, LogicalPlan, Window};
use std::collections::BTreeSet;

use crate::aggregate_rules::arguments;
use crate::aggregate_rules::frames::is_over_partition;
use crate::jvp::dependence::varies;
use crate::jvp::direction::Direction;
use crate::plan::over_input::{over_input, substitute};
use crate::plan::pull_up_column::pull_up_column;
use crate::tangents::linearize::reads;
use crate::vocabulary::expressions::unaliased;
use crate::vocabulary::names::Names;
use crate::vocabulary::nodes::non_query_nodes;
use crate::vocabulary::origin::{Origin, origin};
use xql_autodiff::vocabulary::types::can_vary;

/// A window function below, whose value varies.
#[derive(Debug, Clone)]
pub struct Lower {
    /// As the plan shows it.
    pub function: Expr,
    /// How many window nodes there are above its own.
    depth: usize,
    /// Its column there.
    column: Column,
    /// Whether it has one value in all rows of a partition of the window above, and can be pulled up to it.
    pub is_nested: bool,
}

impl Lower {
    /// Returns the plan with the value of the function, as a column beside the variable.
    pub fn pull_up(&self, plan: LogicalPlan, variable: usize, names: &mut Names) -> Result<(LogicalPlan, Column)> {
        let mut above = 0;
        pull_up_column(plan, variable, names, &mut |node, _, _| {
            if !matches!(node, LogicalPlan::Window(_)) {
                return Ok(None);
            }
            above += 1;
            Ok((above > self.depth).then(|| (node.clone(), self.column.clone())))
        })
    }
}

/// Where windows below are looked for.
pub struct WindowSearch<'b> {
    /// The input of the window.
    pub plan: &'b LogicalPlan,
    /// The position of the variable there.
    pub variable: usize,
    /// The columns that the arguments of the window are computed from.
    pub read: BTreeSet<usize>,
    /// The keys of its partitions.
    pub keys: &'b [Expr],
}

/// A node on the way down from a window.
struct WindowCursor<'p> {
    plan: &'p LogicalPlan,
    variable: usize,
    /// The columns that the arguments of the window are computed from.
    read: BTreeSet<usize>,
    /// The keys of its partitions, those that can be told here.
    keys: Vec<Expr>,
    depth: usize,
    /// Whether columns can be pulled up from here.
    is_open: bool,
}

/// Returns the window functions by way of which these columns vary, the uppermost ones alone.
pub fn windows_below((direction, names): (&Direction, &Names), search: WindowSearch) -> Result<Vec<Lower>> {
    let WindowSearch { plan, variable, read, keys } = search;
    let mut found = vec![];
    let cursor = WindowCursor { plan, variable, read, keys: keys.to_vec(), depth: 0, is_open: true };
    look_below((direction, names), cursor, &mut found)?;
    Ok(found)
}

#[recursive::recursive]
fn look_below(followed: (&Direction, &Names), cursor: WindowCursor, found: &mut Vec<Lower>) -> Result<()> {
    let Origin::Below(sources) = origin(cursor.plan, cursor.variable)? else { return Ok(()) };
    let mut depth = cursor.depth;
    if let LogicalPlan::Window(window) = cursor.plan {
        add_functions(followed, &cursor, window, found)?;
        depth += 1;
    }
    let WindowCursor { plan, read, keys, .. } = cursor;
    let is_open = cursor.is_open && lets_pull_up(plan);
    let inputs = plan.inputs();
    for (number, variable) in sources {
        let Some(input) = inputs.get(number) else { continue };
        let exprs = over_input(plan, number)?;
        let mut read_below = BTreeSet::new();
        if matches!(plan, LogicalPlan::RecursiveQuery(_)) {
            // Iterations compute columns from others.
            read_below.extend(0..input.schema().fields().len());
        }
        for expr in read.iter().filter_map(|index| exprs.get(*index)?.as_ref()) {
            for argument in arguments(expr) {
                read_below.extend(reads(argument, input.schema())?);
            }
        }
        let keys = keys.iter().map(|key| substitute(key, plan, &exprs)).collect::<Result<Vec<_>>>()?;
        let keys = keys.into_iter().flatten().collect();
        let cursor = WindowCursor { plan: input, variable, read: read_below, keys, depth, is_open };
        look_below(followed, cursor, found)?;
    }
    Ok(())
}

/// Returns whether a column of an input can be pulled up above a node.
fn lets_pull_up(node: &LogicalPlan) -> bool {
    match node {
        LogicalPlan::Aggregate(_)
        | LogicalPlan::Distinct(Distinct::All(_))
        | LogicalPlan::Union(_)
        | LogicalPlan::RecursiveQuery(_) => false,
        LogicalPlan::Projection(_)
        | LogicalPlan::Filter(_)
        | LogicalPlan::Window(_)
        | LogicalPlan::Sort(_)
        | LogicalPlan::Join(_)
        | LogicalPlan::Repartition(_)
        | LogicalPlan::TableScan(_)
        | LogicalPlan::EmptyRelation(_)
        | LogicalPlan::Subquery(_)
        | LogicalPlan::SubqueryAlias(_)
        | LogicalPlan::Limit(_)
        | LogicalPlan::Values(_)
        | LogicalPlan::Distinct(Distinct::On(_))
        | LogicalPlan::Unnest(_)
        | LogicalPlan::Extension(_)
        | non_query_nodes!() => true,
    }
}

/// Adds the functions of a window node that vary among the columns that are read there.
fn add_functions(
    followed: (&Direction, &Names),
    cursor: &WindowCursor,
    window: &Window,
    found: &mut Vec<Lower>,
) -> Result<()> {
    let WindowCursor { plan, variable, read, keys, depth, is_open } = cursor;
    let width = window.input.schema().fields().len();
    for index in read.range(width..).copied() {
        let Some(function) = window.window_expr.get(index - width) else { continue };
        let data_type = plan.schema().field(index).data_type();
        if !can_vary(data_type) || !varies(followed, &window.input, *variable, &arguments(function))? {
            continue;
        }
        let is_nested = match unaliased(function) {
            Expr::WindowFunction(call) => {
                let by = &call.params.partition_by;
                let is_known = |key: &Expr| matches!(key, Expr::Literal(..)) || keys.contains(unaliased(key));
                *is_open && is_over_partition(call) && by.iter().all(is_known)
            }
            _ => false,
        };
        let column = Column::from(plan.schema().qualified_field(index));
        found.push(Lower { function: function.clone(), depth: *depth, column, is_nested });
    }
    Ok(())
}
