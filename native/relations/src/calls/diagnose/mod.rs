//! Refuses calls that have a derivative which is not the one that the user meant.
//!
//! - `references`: the function does not depend on the variable, but on another reference to the same column.
//! - `branches`: the same, in one branch of a UNION ALL.
//! - `rounded`: a recursive query converts the floats that it computes to integers.
//! - `subqueries`: a subquery reads the relation of the variable in a place where no derivative by row is known.
//!
//! `sources` distinguishes references to a relation by the paths down the plan to the origins of their columns.

mod branches;
mod references;
mod rounded;
mod sources;
mod subqueries;

use datafusion_common::Result;
use datafusion_common::tree_node::TreeNode;
use std::collections::BTreeSet;
use xql_autodiff::vocabulary::refusals::Refused;

use self::references::References;
use super::call::ResolvedCall;
use super::context::Context;
use super::derivative::TangentsOf;
use super::tangent_cache::Inputs;

pub use branches::check_branches;
pub use rounded::{check_rounded, is_rounded_in};
pub use subqueries::check_subqueries;

/// Refuses a variable on which the function depends not at all, or only through gradients by row, if it depends on
/// another reference to the same column. `by_row` tells whether the derivative is by rows of queries that the function
/// reads. The variables with numbers in `swept` are not checked.
pub fn check_references(
    call: &ResolvedCall,
    tangents: &[TangentsOf],
    (inputs, by_row): (&Inputs, bool),
    swept: &BTreeSet<usize>,
    context: &Context,
) -> Result<()> {
    let mut suspects = vec![];
    for (number, (variable, tangents)) in call.variables.iter().zip(tangents).enumerate() {
        if swept.contains(&number) {
            continue;
        }
        let of_gradients = !tangents.is_empty();
        let is_known = of_gradients && (by_row || context.swept.is_empty());
        if !is_known && !call.function().exists(|part| Ok(variable.is(part, inputs)))? {
            suspects.push((number, of_gradients));
        }
    }
    if suspects.is_empty() {
        return Ok(());
    }
    let references = References::try_new(call, &inputs.before, context)?;
    for (number, of_gradients) in suspects {
        if !(of_gradients && references.reach(number)?) {
            references.check(number, of_gradients).map_err(|error| Refused::Variable.mark(error))?;
        }
    }
    Ok(())
}
