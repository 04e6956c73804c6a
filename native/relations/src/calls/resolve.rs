//! Resolves the variables of calls to columns.

use arrow::datatypes::DataType;
use datafusion_common::{Column, Result, plan_datafusion_err, plan_err};
use datafusion_expr::{Expr, ExprSchemable, LogicalPlan};
use std::sync::Arc;
use xql_autodiff::Refused;
use xql_autodiff::vocabulary::messages::abbreviate;
use xql_autodiff::vocabulary::types::is_float;

use super::context::Context;
use super::tangent_cache::{Inputs, find};
use crate::vocabulary::origin::in_work_table;

/// A resolved variable.
#[derive(Debug)]
pub struct ResolvedVariable {
    /// As the input calls it.
    pub column: Column,
    /// As the call names it.
    pub named: Column,
    /// The input that has it.
    pub owner: Owner,
}

/// The input that has a variable among its columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// The input of this number.
    Input(usize),
    /// An input of the outer query of this number, of which the call is in a subquery.
    OuterQuery { query: usize, input: usize },
}

impl ResolvedVariable {
    /// Resolves a variable. Returns `None` if the expression cannot be a variable, which `simplify` reports.
    pub fn resolve(variable: &Expr, call: &Expr, inputs: &Inputs, context: &Context) -> Result<Option<Self>> {
        let Context { outer, iterated, .. } = context;
        if !variable.get_type(&inputs.schema()).is_ok_and(|data_type| is_float(&data_type)) {
            check_first_rows(variable, call, inputs, iterated)?;
            return Ok(None);
        }
        match variable {
            Expr::Column(named) => Ok(inputs.find(named).map(|(input, column)| Self {
                column,
                named: named.clone(),
                owner: Owner::Input(input),
            })),
            Expr::OuterReferenceColumn(_, named) => {
                let found = outer.iter().enumerate().rev().find_map(|(query, plans)| {
                    let (input, column) = find(plans.iter().map(Arc::as_ref), named)?;
                    Some(Self { column, named: named.clone(), owner: Owner::OuterQuery { query, input } })
                });
                match found {
                    None => plan_err!("{}: no query around it has a column {named}", abbreviate(call)),
                    found => Ok(found),
                }
            }
            _ => Ok(None),
        }
    }

    /// Returns whether an expression is the variable.
    pub fn is(&self, expr: &Expr, inputs: &Inputs) -> bool {
        match (expr, self.owner) {
            (Expr::Column(column), Owner::Input(_)) => {
                inputs.find(column).is_some_and(|(_, column)| column == self.column)
            }
            (Expr::OuterReferenceColumn(_, column), Owner::OuterQuery { .. }) => column == &self.column,
            _ => false,
        }
    }
}

/// Refuses a variable that is an integer or a decimal because it is one in the first rows of a recursive query. A cast
/// where it is read would not help, since each step would still round it.
fn check_first_rows(variable: &Expr, call: &Expr, inputs: &Inputs, iterated: &[LogicalPlan]) -> Result<()> {
    let Expr::Column(named) = variable else { return Ok(()) };
    let Some((input, column)) = inputs.find(named) else { return Ok(()) };
    let schema = inputs.plans[input].schema();
    let index = schema.index_of_column(&column)?;
    let data_type = schema.field(index).data_type();
    for query in iterated.iter().rev().filter(|_| data_type.is_numeric()) {
        let LogicalPlan::RecursiveQuery(query) = query else { continue };
        let Some(first) = in_work_table(&inputs.plans[input], index, &query.name)? else { continue };
        let first = query.static_term.schema().field(first).name();
        return Err(Refused::Variable.mark(plan_datafusion_err!(
            "{}: the variable must be a column of floats; {column} is {data_type}, as it is in the first rows of the recursive query {}, \
             to which each step is converted. {}",
            abbreviate(call),
            query.name,
            make_it_a_double(first, data_type)
        )));
    }
    Ok(())
}

/// Returns advice for a column of this type in the first rows. Some engines take `0.0` for a decimal.
pub fn make_it_a_double(column: &str, data_type: &DataType) -> String {
    match data_type.is_integer() {
        true => format!(
            "Make it a DOUBLE there: `0.0 AS {column}` for 0, or CAST(0 AS DOUBLE) AS {column} where 0.0 is a decimal"
        ),
        false => format!("Make it a DOUBLE there: CAST(... AS DOUBLE) AS {column}"),
    }
}
