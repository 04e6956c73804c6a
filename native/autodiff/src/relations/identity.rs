//! The error for a variable that an expression does not depend on, where it depends on another reference to the same column.

use datafusion_common::{Column, Result, plan_err};
use datafusion_expr::{Expr, LogicalPlan};
use std::collections::HashSet;

use super::origin::{Origin, origin};
use super::tangent::{can_vary, reads};
use crate::call::abbreviated;

/// A column of a node of a plan. Two references to one table are equal nodes.
type Source<'p> = (&'p LogicalPlan, usize);

/// The error if an expression over a node, which does not vary with a column, reads what the column is made of otherwise.
pub fn check(call: &Expr, expression: &Expr, variable: &Column, inputs: &[LogicalPlan]) -> Result<()> {
    let mut of_variable = HashSet::new();
    for input in inputs {
        if let Some(index) = input.schema().maybe_index_of_column(variable) {
            collect(input, index, &mut of_variable)?;
        }
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
            let name = Column::from(node.schema().qualified_field(*shared));
            return plan_err!(
                "{}: {} does not vary with {variable}, though both come from {name}: what counts is the reference that is \
                 named, and {variable} is another one than {column} is computed from. Differentiate by the column that \
                 {column} is computed from, and pass it on to here",
                abbreviated(call),
                abbreviated(expression)
            );
        }
    }
    Ok(())
}

/// Adds all that a column is computed from, itself included.
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
