//! Lists and structs, each element of which becomes a row or a column.

use datafusion_common::{Result, plan_err};
use datafusion_expr::Unnest;
use datafusion_expr::builder::unnest_with_options;

use super::propagate::{NodeRequest, Propagation, WithTangents};
use crate::tangents::tangent::{Tangent, Tangents};
use crate::vocabulary::origin::is_unnested;

/// Propagates tangents through UNNEST. The elements of lists and structs have no tangents, and the other columns keep
/// theirs.
///
/// ```text
/// Unnest: lists[v] structs[]
///   Projection: l.w, l.w * 2 AS q, l.v
/// ```
///
/// becomes
///
/// ```text
/// Unnest: lists[v] structs[]
///   Projection: l.w, l.w * 2 AS q, l.v, jvp(l.w * 2, l.w, 1) AS ∂q/∂w
/// ```
pub fn unnest(propagation: &mut Propagation, unnest: &Unnest, requests: &[NodeRequest]) -> Result<WithTangents> {
    let source = |index: usize| unnest.dependency_indices.get(index).copied();
    let to_input = requests.iter().map(|request| {
        let below = request.output.columns.iter().filter_map(|index| source(*index));
        request.of_input(0, below.collect())
    });
    let to_input = to_input.collect();
    let propagated = propagation.propagate(unnest.input.as_ref().clone(), to_input)?;
    let mut all = vec![];
    for ((direction, request), below) in propagation.directions.iter().zip(requests).zip(&propagated.tangents) {
        let mut tangents = Tangents::default();
        for index in &request.output.columns {
            let Some(column) = source(*index) else { continue };
            let tangent = below.get(column);
            if is_unnested(unnest, column) && tangent != Tangent::Zero {
                return plan_err!(
                    "{} comes out of a list or struct that the query computes from {}. xql-ffi does not differentiate lists \
                     and structs",
                    unnest.schema.field(*index).name(),
                    direction.variable
                );
            }
            tangents.set(*index, tangent);
        }
        all.push(tangents);
    }
    let plan = unnest_with_options(propagated.plan, unnest.exec_columns.clone(), unnest.options.clone())?;
    Ok(WithTangents { plan, tangents: all })
}
