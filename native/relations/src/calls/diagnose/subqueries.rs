//! The error for a subquery that reads the relation of a variable, where its derivative by the rows is not known.

use datafusion_common::{Result, plan_err};
use xql_autodiff::vocabulary::messages::abbreviate;

use crate::calls::call::ResolvedCall;
use crate::calls::context::Context;
use crate::calls::resolve::Owner;
use crate::calls::tangent_cache::Inputs;
use crate::vocabulary::decorrelated::subqueries_read;
use crate::vocabulary::identity::{PlanPath, Relation};
use crate::vocabulary::source::{origins_of, reads};

/// Refuses a subquery that reads the relation of a variable and has not become a column, as in the condition of a join.
pub fn check_subqueries(call: &ResolvedCall, inputs: &Inputs, context: &Context) -> Result<()> {
    for variable in &call.variables {
        let input = match variable.owner {
            Owner::Input(input) => &inputs.before[input],
            Owner::OuterQuery { query, input } => &context.outer[query][input],
        };
        let Some(index) = input.schema().maybe_index_of_column(&variable.column) else { continue };
        let queries = subqueries_read(call.function())?;
        for origin in origins_of(input, index)? {
            if reads(&queries, &Relation::named(origin, PlanPath::default()))? {
                return plan_err!(
                    "{}: a subquery in it reads the rows that {} comes from, and its derivative by them is not known where the \
                     call is in the condition of a join or in a correlated subquery. Compute the call in a CTE over one table",
                    abbreviate(call.derivative.call),
                    variable.named
                );
            }
        }
    }
    Ok(())
}
