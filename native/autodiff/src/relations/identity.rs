//! The error for a variable that an expression does not depend on, where it depends on another reference to the same column.

use datafusion_common::{Column, Result, plan_err};
use datafusion_expr::{Expr, LogicalPlan};
use std::collections::HashSet;

use super::origin::{Origin, origin};
use super::tangent::{can_vary, reads};
use crate::call::abbreviated;

/// A column of a node of a plan. Two references to one table are equal nodes.
type Source<'p> = (&'p LogicalPlan, usize);

/// The error if an expression over these inputs, which does not vary with a column, reads what the column is made of
/// otherwise.
pub fn check(call: &Expr, expression: &Expr, variable: &Column, inputs: &[LogicalPlan]) -> Result<()> {
    let mut of_variable = HashSet::new();
    for (input, index) in positions(variable, inputs) {
        collect(input, index, &mut of_variable)?;
    }
    for input in inputs {
        for index in reads(expression, input.schema()) {
            let column = Column::from(input.schema().qualified_field(index));
            if !can_vary(input.schema().field(index).data_type()) || &column == variable {
                continue;
            }
            let mut of_column = HashSet::new();
            collect(input, index, &mut of_column)?;
            let Some((node, shared)) = of_column.intersection(&of_variable).next() else { continue };
            let source = Column::from(node.schema().qualified_field(*shared));
            let meant = match same_reference(node, *shared, inputs)? {
                Some(column) => format!("Differentiate by {column}"),
                None => format!("Pass on the {} that {column} is computed from, and differentiate by it", source.name),
            };
            return plan_err!(
                "{}: {} does not vary with {variable}. Both come from {source}, but {variable} is a variable of its own: every \
                 reference to a table, view or CTE is, and so is every column computed from one. {meant}",
                abbreviated(call),
                abbreviated(expression)
            );
        }
    }
    Ok(())
}

/// Where a column is found among inputs.
fn positions<'p>(column: &Column, inputs: &'p [LogicalPlan]) -> Vec<(&'p LogicalPlan, usize)> {
    let found = inputs.iter().map(|input| (input, input.schema().maybe_index_of_column(column)));
    found.filter_map(|(input, index)| Some((input, index?))).collect()
}

/// The column of the inputs that is column number `index` of a node below, unchanged.
fn same_reference(node: &LogicalPlan, index: usize, inputs: &[LogicalPlan]) -> Result<Option<Column>> {
    for input in inputs {
        for candidate in 0..input.schema().fields().len() {
            if is_from(input, candidate, node, index)? {
                return Ok(Some(Column::from(input.schema().qualified_field(candidate))));
            }
        }
    }
    Ok(None)
}

fn is_from(plan: &LogicalPlan, index: usize, node: &LogicalPlan, source: usize) -> Result<bool> {
    if std::ptr::eq(plan, node) {
        return Ok(index == source);
    }
    let Origin::Below(below) = origin(plan, index)? else { return Ok(false) };
    let inputs = plan.inputs();
    for (input, column) in below {
        if let Some(input) = inputs.get(input)
            && is_from(input, column, node, source)?
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Adds all that a column is computed from, its origin included.
#[recursive::recursive]
fn collect<'p>(plan: &'p LogicalPlan, index: usize, sources: &mut HashSet<Source<'p>>) -> Result<()> {
    let inputs = plan.inputs();
    match origin(plan, index)? {
        Origin::Below(below) => {
            for (input, column) in below {
                if let Some(input) = inputs.get(input) {
                    collect(input, column, sources)?;
                }
            }
        }
        Origin::Here => {
            if !sources.insert((plan, index)) {
                return Ok(());
            }
            let computed = match plan {
                LogicalPlan::Projection(projection) => projection.expr.get(index).cloned(),
                LogicalPlan::Aggregate(_) | LogicalPlan::Window(_) => {
                    let schema = plan.schema();
                    let name = schema.field(index).name();
                    plan.expressions().into_iter().find(|expr| &expr.qualified_name().1 == name)
                }
                _ => None,
            };
            if let (Some(computed), [input]) = (computed, inputs.as_slice()) {
                for column in reads(&computed, input.schema()) {
                    collect(input, column, sources)?;
                }
            }
        }
    }
    Ok(())
}
