//! Columns that a node needs of its inputs.

use datafusion_common::tree_node::TreeNodeRecursion;
use datafusion_common::{Column, DFSchema, JoinType, Result};
use datafusion_expr::{Distinct, Expr, Join, LogicalPlan};
use std::collections::{BTreeSet, HashMap, HashSet};
use xql_autodiff::vocabulary::columns::columns_read;

use crate::vocabulary::nodes::non_query_nodes;
use crate::vocabulary::origin::{Origin, origin};

/// Returns for each input which columns of it a node needs to compute these columns of its own.
///
/// ```text
/// Filter: x > 0         column 0, k        ->      columns 0 and 1
///   TableScan: k, x, y
/// ```
///
/// DataFusion's own rule, `OptimizeProjections`, needs no more of any node, so that it never reads what has not been said to be needed.
///
/// # Errors
/// If an expression cannot be traversed.
pub fn columns_of_inputs(plan: &LogicalPlan, needed: &BTreeSet<usize>) -> Result<Vec<BTreeSet<usize>>> {
    let inputs = plan.inputs();
    let mut of_inputs = vec![BTreeSet::new(); inputs.len()];
    let mut read: HashSet<Column> = HashSet::new();
    match plan {
        LogicalPlan::Projection(projection) => {
            read.extend(needed.iter().filter_map(|column| projection.expr.get(*column)).flat_map(columns_read));
        }
        LogicalPlan::Aggregate(aggregate) => {
            let computed = behind(needed, aggregate.group_expr_len()?, &aggregate.aggr_expr);
            read.extend(aggregate.group_expr.iter().chain(computed).flat_map(columns_read));
        }
        LogicalPlan::Window(window) => {
            add_passed_on(plan, needed, &mut of_inputs)?;
            let below = window.input.schema().fields().len();
            read.extend(behind(needed, below, &window.window_expr).flat_map(columns_read));
        }
        LogicalPlan::Filter(_)
        | LogicalPlan::Sort(_)
        | LogicalPlan::Limit(_)
        | LogicalPlan::Repartition(_)
        | LogicalPlan::SubqueryAlias(_)
        | LogicalPlan::Union(_)
        | LogicalPlan::Join(_) => {
            add_passed_on(plan, needed, &mut of_inputs)?;
            plan.apply_expressions(|expr| {
                read.extend(columns_read(expr));
                Ok(TreeNodeRecursion::Continue)
            })?;
        }
        LogicalPlan::TableScan(_)
        | LogicalPlan::EmptyRelation(_)
        | LogicalPlan::Values(_)
        | LogicalPlan::Subquery(_)
        | LogicalPlan::Distinct(Distinct::All(_) | Distinct::On(_))
        | LogicalPlan::Unnest(_)
        | LogicalPlan::RecursiveQuery(_)
        | LogicalPlan::Extension(_)
        | non_query_nodes!() => {
            return Ok(inputs.iter().map(|input| (0..input.schema().fields().len()).collect()).collect());
        }
    }
    if !read.is_empty() {
        for (input, of_input) in inputs.iter().zip(&mut of_inputs) {
            add_positions_in(&read, input.schema(), of_input);
        }
    }
    // A mark join reads a column of the side that it looks for rows in, whichever.
    if let LogicalPlan::Join(Join { join_type: JoinType::LeftMark | JoinType::RightMark, .. }) = plan {
        of_inputs.iter_mut().filter(|of_input| of_input.is_empty()).for_each(|of_input| _ = of_input.insert(0));
    }
    Ok(of_inputs)
}

/// Returns the expressions of those needed columns that a node has behind so many others.
fn behind<'a>(needed: &'a BTreeSet<usize>, others: usize, exprs: &'a [Expr]) -> impl Iterator<Item = &'a Expr> {
    needed.iter().filter_map(move |column| exprs.get(column.checked_sub(others)?))
}

/// Adds the columns of the inputs that a node passes on as needed columns of its own.
fn add_passed_on(plan: &LogicalPlan, needed: &BTreeSet<usize>, of_inputs: &mut [BTreeSet<usize>]) -> Result<()> {
    for column in needed {
        if let Origin::Below(sources) = origin(plan, *column)? {
            sources.into_iter().for_each(|(input, below)| _ = of_inputs[input].insert(below));
        }
    }
    Ok(())
}

/// Adds the positions of columns in a schema to others, those of all columns that one may be.
pub fn add_positions_in<'a>(
    columns: impl IntoIterator<Item = &'a Column>,
    schema: &DFSchema,
    positions: &mut BTreeSet<usize>,
) {
    let mut by_name: HashMap<&str, Vec<usize>> = HashMap::new();
    for (position, field) in schema.fields().iter().enumerate() {
        by_name.entry(field.name()).or_default().push(position);
    }
    for column in columns {
        for position in by_name.get(column.name.as_str()).into_iter().flatten() {
            let (qualifier, _) = schema.qualified_field(*position);
            let is_it = match (&column.relation, qualifier) {
                (Some(table), Some(qualifier)) => qualifier.resolved_eq(table),
                _ => true,
            };
            if is_it {
                positions.insert(*position);
            }
        }
    }
}
