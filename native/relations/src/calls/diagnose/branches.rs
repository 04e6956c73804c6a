//! The error that a call would be if only one branch of a UNION ALL below its node gave rows.

use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{Column, Result, plan_datafusion_err};
use datafusion_expr::{Expr, LogicalPlan, Projection};
use std::sync::Arc;
use xql_autodiff::vocabulary::columns::columns_read;
use xql_autodiff::vocabulary::messages::error_text;
use xql_autodiff::vocabulary::refusals::Refused;

use super::references::References;
use crate::calls::call::ResolvedCall;
use crate::calls::context::Context;
use crate::calls::resolve::Owner;
use crate::calls::tangent_cache::{Inputs, find};
use crate::vocabulary::origin::{Origin, origin};

/// Returns the error if the function does not depend on a variable in a branch of a UNION ALL that a variable comes from, but on
/// another reference to the same column.
///
/// `entered` is what the node read before this call asked for tangents: a call in it may have put its own there, which it reads.
pub fn check_branches(call: &ResolvedCall, inputs: &Inputs, entered: &[LogicalPlan], context: &Context) -> Result<()> {
    let read = columns_read(call.derivative.call);
    let added = read.iter().any(|column| find(&inputs.before, column).is_none() && find(entered, column).is_some());
    let before = if added { entered } else { &inputs.before };
    let mut independent = vec![];
    for (number, variable) in call.variables.iter().enumerate() {
        if !call.function().exists(|part| Ok(variable.is(part, inputs)))? {
            independent.push((number, variable));
        }
    }
    for (_, variable) in &independent {
        let Owner::Input(number) = variable.owner else { continue };
        let Some(index) = before[number].schema().maybe_index_of_column(&variable.column) else { continue };
        for (branch, position) in branches(&before[number], index)?.into_iter().zip(1..) {
            let mut plans = before.to_vec();
            plans[number] = branch;
            let references = References::try_new(call, &plans, context)?;
            for (variable, _) in &independent {
                if references.reach(*variable)? {
                    continue;
                }
                references.check(*variable, false).map_err(|error| {
                    let error = Refused::Variable.mark(error);
                    plan_datafusion_err!("in branch {position} of a UNION ALL: {}", error_text(error))
                })?;
            }
        }
    }
    Ok(())
}

/// Returns the plan with each UNION ALL that a column passes through replaced by one of its branches: one plan for each branch,
/// none if there is no union.
///
/// ```text
/// Filter: x > 0            Filter: x > 0          Filter: x > 0
///   Union                    Projection: a.x        Projection: b.x AS x
///     TableScan: a             TableScan: a           TableScan: b
///     TableScan: b
/// ```
#[recursive::recursive]
fn branches(plan: &LogicalPlan, column: usize) -> Result<Vec<LogicalPlan>> {
    let Origin::Below(sources) = origin(plan, column)? else { return Ok(vec![]) };
    let inputs = plan.inputs();
    let mut found = vec![];
    for (number, column) in sources {
        let Some(input) = inputs.get(number) else { continue };
        let below = branches(input, column)?;
        if let LogicalPlan::Union(union) = plan {
            let alone = if below.is_empty() { vec![(*input).clone()] } else { below };
            for input in alone {
                let renamed = union.schema.iter().zip(input.schema().iter()).map(|((table, field), below)| {
                    Expr::Column(Column::from(below)).alias_qualified(table.cloned(), field.name())
                });
                let projection = Projection::try_new(renamed.collect(), Arc::new(input.clone()))?;
                found.push(LogicalPlan::Projection(projection));
            }
            continue;
        }
        for branch in below {
            let mut position = 0;
            let over = plan.clone().map_children(|child| {
                position += 1;
                Ok(if position == number + 1 { Transformed::yes(branch.clone()) } else { Transformed::no(child) })
            })?;
            found.push(over.data);
        }
    }
    Ok(found)
}
