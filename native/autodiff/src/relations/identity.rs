//! The error for a variable that an expression does not depend on, where it depends on another reference to the same column.

use datafusion_common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion_common::{Column, Result, plan_err};
use datafusion_expr::{Expr, LogicalPlan};
use std::collections::HashSet;

use super::origin::{Origin, origin};
use super::over::arguments;
use super::tangent::{can_vary, reads};
use crate::call::abbreviated;

/// A column of a node of a plan. Two references to one table are equal nodes.
type Source<'p> = (&'p LogicalPlan, usize);

/// The error if an expression over these inputs, which does not vary with a column, is computed from another reference to it.
pub fn check(call: &Expr, expression: &Expr, variable: &Column, inputs: &[LogicalPlan]) -> Result<()> {
    let mut of_variable = HashSet::new();
    for (input, index) in positions(variable, inputs) {
        collect(input, index, false, &mut of_variable)?;
    }
    for input in inputs {
        for index in reads(expression, input.schema()) {
            let column = Column::from(input.schema().qualified_field(index));
            if !can_vary(input.schema().field(index).data_type()) || &column == variable {
                continue;
            }
            let mut of_column = HashSet::new();
            collect(input, index, true, &mut of_column)?;
            // Of equal nodes, the one that the expression is computed from.
            let Some((node, shared)) = of_column.iter().find(|source| of_variable.contains(source)) else { continue };
            let source = Column::from(node.schema().qualified_field(*shared));
            let meant = match same_reference(node, *shared, inputs)? {
                Some(column) => format!("Differentiate by {column}"),
                None => format!("Pass on the {} that {column} is computed from, and differentiate by it", source.name),
            };
            return another_reference(call, expression, variable, &source, &meant);
        }
    }
    for plan in scalar_subqueries(expression)? {
        let mut of_value = HashSet::new();
        if can_vary(plan.schema().field(0).data_type()) {
            collect(plan, 0, true, &mut of_value)?;
        }
        if let Some((node, shared)) = of_value.iter().find(|source| of_variable.contains(source)) {
            let source = Column::from(node.schema().qualified_field(*shared));
            let meant =
                format!("Join the subquery instead, with a column for its {}, and differentiate by that", source.name);
            return another_reference(call, expression, variable, &source, &meant);
        }
    }
    Ok(())
}

fn another_reference(call: &Expr, expression: &Expr, variable: &Column, source: &Column, meant: &str) -> Result<()> {
    plan_err!(
        "{}: {} does not vary with {variable}. Both come from {source}, but {variable} is a variable of its own: every \
         reference to a table, view or CTE is. {meant}",
        abbreviated(call),
        abbreviated(expression)
    )
}

/// The plans of the subqueries whose values an expression reads.
fn scalar_subqueries(expression: &Expr) -> Result<Vec<&LogicalPlan>> {
    let mut plans = vec![];
    expression.apply(|part| {
        if let Expr::ScalarSubquery(subquery) = part {
            plans.push(subquery.subquery.as_ref());
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(plans)
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

#[recursive::recursive]
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

/// Adds the origin of a column, and with `all` also what that is computed from.
#[recursive::recursive]
fn collect<'p>(plan: &'p LogicalPlan, index: usize, all: bool, sources: &mut HashSet<Source<'p>>) -> Result<()> {
    let inputs = plan.inputs();
    if let Origin::Below(below) = origin(plan, index)? {
        for (input, column) in below {
            if let Some(input) = inputs.get(input) {
                collect(input, column, all, sources)?;
            }
        }
        return Ok(());
    }
    if !sources.insert((plan, index)) || !all {
        return Ok(());
    }
    if let LogicalPlan::RecursiveQuery(query) = plan {
        collect(&query.static_term, index, all, sources)?;
        return collect(&query.recursive_term, index, all, sources);
    }
    let [input] = inputs.as_slice() else { return Ok(()) };
    for expr in computed(plan, index) {
        for column in arguments(&expr).into_iter().flat_map(|argument| reads(argument, input.schema())) {
            collect(input, column, all, sources)?;
        }
    }
    Ok(())
}

/// The expressions that compute a column.
fn computed(plan: &LogicalPlan, index: usize) -> Vec<Expr> {
    let name = plan.schema().field(index).name();
    match plan {
        LogicalPlan::Projection(projection) => projection.expr.get(index).cloned().into_iter().collect(),
        _ => plan.expressions().into_iter().filter(|expr| &expr.qualified_name().1 == name).collect(),
    }
}
