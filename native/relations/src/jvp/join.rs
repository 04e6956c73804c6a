//! Joins.

use datafusion_common::{JoinType, Result, plan_err};
use datafusion_expr::{Join, LogicalPlan, SubqueryAlias};

use super::direction::{Direction, Variable};
use super::propagate::{ColumnRequest, NodeRequest, Perturb, Propagation, WithTangents};
use crate::vocabulary::decorrelated::decorrelated;

/// Propagates tangents through a join. A tangent passes the join like its column, and is NULL in rows that an outer
/// join extends.
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
pub fn join(propagation: &mut Propagation, join: Join, requests: &[NodeRequest]) -> Result<WithTangents> {
    let width = join.left.schema().fields().len();
    // Semi and anti joins have the columns of one side only.
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
        let (left, right): (Vec<_>, Vec<_>) = request.output.columns.iter().partition(|index| **index < shift);
        to_left.push(request.of_input(0, left.into_iter().copied().collect()));
        to_right.push(request.of_input(1, right.into_iter().map(|index| index - shift).collect()));
    }
    if let Some(subquery) = decorrelated(&join) {
        check_decorrelated(propagation, subquery, &to_right)?;
    }
    let plan = LogicalPlan::Join(join);
    let [left, right] = [plan.inputs()[0].clone(), plan.inputs()[1].clone()];
    let left = propagation.propagate(left, to_left)?;
    let right = propagation.propagate(right, to_right)?;
    let mut tangents = left.tangents;
    for (tangents, of_right) in tangents.iter_mut().zip(&right.tangents) {
        for (index, tangent) in of_right.iter() {
            tangents.set(index + shift, tangent.clone());
        }
    }
    let plan = plan.with_new_exprs(plan.expressions(), vec![left.plan, right.plan])?;
    Ok(WithTangents { plan, tangents })
}

/// Refuses a decorrelated subquery that varies with the variable of the left side. The right side of a join that the
/// user wrote is another reference to the relation, and does not move with the left side, but a subquery does.
fn check_decorrelated(
    propagation: &mut Propagation,
    subquery: &SubqueryAlias,
    requests: &[ColumnRequest],
) -> Result<()> {
    for (number, request) in requests.iter().enumerate() {
        if !request.columns.is_empty() && varies(propagation, number, subquery, request)? {
            return plan_err!(
                "a correlated subquery reads the rows that {} comes from, and a column has its value. Write the expression of the column \
                 in the call itself, in place of the column, or write the subquery as a join",
                propagation.directions[number].variable
            );
        }
    }
    Ok(())
}

/// Returns whether columns of a subquery vary with a variable, wherever it reads that. A subquery whose tangents would
/// be refused counts as varying.
fn varies(
    propagation: &mut Propagation,
    number: usize,
    subquery: &SubqueryAlias,
    request: &ColumnRequest,
) -> Result<bool> {
    let direction = propagation.directions[number].clone();
    for cell in &direction.origins {
        if !cell.is_read_by(&subquery.input)? {
            continue;
        }
        let cell = Some(cell.clone());
        let everywhere = Direction { cell, seed: None, origins: vec![], ..direction.clone() };
        let request = ColumnRequest {
            variable: Variable::Everywhere,
            perturb: Perturb::AllRows,
            columns: request.columns.clone(),
        };
        let Ok((_, tangents)) = propagation.propagate_on_copy(everywhere, subquery.input.as_ref().clone(), request)
        else {
            return Ok(true);
        };
        if tangents.iter().next().is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}
