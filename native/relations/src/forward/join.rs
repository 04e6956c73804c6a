//! Joins.

use datafusion_common::{JoinType, Result};
use datafusion_expr::{Join, LogicalPlan};

use super::carrier::{Carried, Carrier, Request};

/// Tangents pass a join as its columns do, so they are NULL on rows that an outer join extends.
///
/// ```text
/// Left Join:  Filter: m.id = n.i
///   Projection: d.id, p.w, p.w * d.x AS q
///   TableScan: n
/// ```
///
/// becomes
///
/// ```text
/// Left Join:  Filter: m.id = n.i
///   Projection: d.id, p.w, p.w * d.x AS q, jvp(p.w * d.x, p.w, 1) AS ∂q/∂w
///   TableScan: n
/// ```
pub fn join(carrier: &mut Carrier, join: Join, requests: &[Request]) -> Result<Carried> {
    let width = join.left.schema().fields().len();
    // Those that only test the left side have no columns of it.
    let shift = match join.join_type {
        JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => 0,
        JoinType::Inner
        | JoinType::Left
        | JoinType::Right
        | JoinType::Full
        | JoinType::LeftSemi
        | JoinType::LeftAnti
        | JoinType::LeftMark => width,
    };
    let (mut to_left, mut to_right) = (vec![], vec![]);
    for request in requests {
        let (left, right): (Vec<_>, Vec<_>) = request.asked.wanted.iter().partition(|index| **index < shift);
        to_left.push(request.of_input(0, left.into_iter().copied().collect()));
        to_right.push(request.of_input(1, right.into_iter().map(|index| index - shift).collect()));
    }
    let plan = LogicalPlan::Join(join);
    let [left, right] = [plan.inputs()[0].clone(), plan.inputs()[1].clone()];
    let left = carrier.carry(left, to_left)?;
    let right = carrier.carry(right, to_right)?;
    let mut tangents = left.tangents;
    for (tangents, of_right) in tangents.iter_mut().zip(&right.tangents) {
        for (index, tangent) in of_right.iter() {
            tangents.set(index + shift, tangent.clone());
        }
    }
    let plan = plan.with_new_exprs(plan.expressions(), vec![left.plan, right.plan])?;
    Ok(Carried { plan, tangents })
}
