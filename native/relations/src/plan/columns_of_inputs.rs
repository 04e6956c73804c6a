//! Columns that a node needs of its inputs.

use datafusion_common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion_common::{Column, DFSchema, JoinType, Result};
use datafusion_expr::{Distinct, Expr, Join, LogicalPlan};
use std::collections::{BTreeSet, HashMap};

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
    let mut read = vec![];
    match plan {
        LogicalPlan::Projection(projection) => {
            read.extend(needed.iter().filter_map(|column| projection.expr.get(*column)));
        }
        LogicalPlan::Aggregate(aggregate) => {
            read.extend(&aggregate.group_expr);
            let keys = aggregate.group_expr_len()?;
            let computed = needed.iter().filter_map(|column| column.checked_sub(keys));
            read.extend(computed.filter_map(|column| aggregate.aggr_expr.get(column)));
        }
        LogicalPlan::Window(window) => {
            let below = window.input.schema().fields().len();
            of_inputs[0].extend(needed.iter().copied().filter(|column| *column < below));
            let computed = needed.iter().filter_map(|column| column.checked_sub(below));
            read.extend(computed.filter_map(|column| window.window_expr.get(column)));
        }
        LogicalPlan::Filter(_)
        | LogicalPlan::Sort(_)
        | LogicalPlan::Limit(_)
        | LogicalPlan::Repartition(_)
        | LogicalPlan::SubqueryAlias(_)
        | LogicalPlan::Union(_)
        | LogicalPlan::Join(_) => {
            for column in needed {
                if let Origin::Below(sources) = origin(plan, *column)? {
                    sources.into_iter().for_each(|(input, below)| _ = of_inputs[input].insert(below));
                }
            }
            let mut columns = vec![];
            plan.apply_expressions(|expr| add_columns(expr, &mut columns))?;
            add_positions(&columns, &inputs, &mut of_inputs);
            // A mark join reads a column of the side that it looks for rows in, whichever.
            if let LogicalPlan::Join(Join { join_type: JoinType::LeftMark | JoinType::RightMark, .. }) = plan {
                of_inputs.iter_mut().filter(|of_input| of_input.is_empty()).for_each(|of_input| _ = of_input.insert(0));
            }
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
            of_inputs = inputs.iter().map(|input| (0..input.schema().fields().len()).collect()).collect();
        }
    }
    let mut columns = vec![];
    for expr in read {
        add_columns(expr, &mut columns)?;
    }
    add_positions(&columns, &inputs, &mut of_inputs);
    Ok(of_inputs)
}

fn add_columns(expr: &Expr, columns: &mut Vec<Column>) -> Result<TreeNodeRecursion> {
    expr.apply(|part| {
        if let Expr::Column(column) = part {
            columns.push(column.clone());
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(TreeNodeRecursion::Continue)
}

/// Adds the positions of columns to those of the inputs that have them.
fn add_positions(columns: &[Column], inputs: &[&LogicalPlan], of_inputs: &mut [BTreeSet<usize>]) {
    if columns.is_empty() {
        return;
    }
    for (input, of_input) in inputs.iter().zip(of_inputs) {
        add_positions_in(columns, input.schema(), of_input);
    }
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
