//! An expression over a join as a product of expressions over its inputs.

use arrow::datatypes::DataType;
use datafusion_common::tree_node::TreeNode;
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::Operator;
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_expr::expressions::{BinaryExpr, CaseExpr, CastExpr, Literal, NegativeExpr, lit};
use datafusion_physical_expr::utils::split_conjunction;
use std::sync::Arc;

use super::joined::Joined;

/// A product with a factor of each input, over the columns of all. It is NULL where one of them is.
pub struct Product {
    /// The factors, 1 where there is none.
    pub factors: Vec<Option<Arc<dyn PhysicalExpr>>>,
    /// Whether it is rounded to single precision.
    pub single: bool,
}

/// An expression as a product, where a condition is fulfilled, and NULL elsewhere. None if it is no product.
pub fn product(
    expr: &Arc<dyn PhysicalExpr>,
    condition: Option<&Arc<dyn PhysicalExpr>>,
    joined: &Joined,
) -> Result<Option<Product>> {
    for part in condition.into_iter().chain([expr]) {
        if part.exists(|part| Ok(part.is_volatile_node()))? {
            return Ok(None);
        }
    }
    let Some((factors, single)) = factors_or_single(expr, joined)? else { return Ok(None) };
    let factors = match condition {
        Some(condition) => where_true(condition, factors, joined)?,
        None => Some(factors),
    };
    Ok(factors.map(|factors| Product { factors, single }))
}

/// The factors of the inputs, 1 where there is none.
pub type Factors = Vec<Option<Arc<dyn PhysicalExpr>>>;

/// The factors of an expression, and whether their product is in single precision.
fn factors_or_single(expr: &Arc<dyn PhysicalExpr>, joined: &Joined) -> Result<Option<(Factors, bool)>> {
    if let Some(cast) = expr.downcast_ref::<CastExpr>()
        && *cast.cast_type() == DataType::Float64
        && joined.type_of(cast.expr())? == DataType::Float32
        && let Some(product) = cast.expr().downcast_ref::<BinaryExpr>()
        && *product.op() == Operator::Multiply
    {
        // Several products would be rounded several times.
        if let (Some(a), Some(b)) = (joined.side_of(product.left()), joined.side_of(product.right()))
            && a != b
        {
            let mut factors: Factors = vec![None; joined.inputs.len()];
            factors[a] = Some(Arc::clone(product.left()));
            factors[b] = Some(Arc::clone(product.right()));
            return Ok(Some((factors, true)));
        }
    }
    Ok(factors(expr, joined)?.map(|factors| (factors, false)))
}

/// The factors of an expression.
fn factors(expr: &Arc<dyn PhysicalExpr>, joined: &Joined) -> Result<Option<Factors>> {
    if let [] | [_] = joined.sides_of(expr).as_slice() {
        let mut factors: Factors = vec![None; joined.inputs.len()];
        factors[joined.side_of(expr).unwrap_or_default()] = Some(Arc::clone(expr));
        return Ok(Some(factors));
    }
    if joined.type_of(expr)? != DataType::Float64 {
        return Ok(None);
    }
    if let Some(product) = expr.downcast_ref::<BinaryExpr>() {
        return of_operator(product, joined);
    }
    if let Some(negative) = expr.downcast_ref::<NegativeExpr>() {
        let Some(mut factors) = factors(negative.arg(), joined)? else { return Ok(None) };
        let known = factors.iter_mut().flatten().next();
        known.into_iter().for_each(|factor| *factor = Arc::new(NegativeExpr::new(Arc::clone(factor))));
        return Ok(Some(factors));
    }
    if let Some(cast) = expr.downcast_ref::<CastExpr>() {
        return factors(cast.expr(), joined);
    }
    if let Some(case) = expr.downcast_ref::<CaseExpr>() {
        return of_case(case, joined);
    }
    Ok(None)
}

fn of_operator(expr: &BinaryExpr, joined: &Joined) -> Result<Option<Factors>> {
    let with = |a: &Arc<dyn PhysicalExpr>, operator, b: &Arc<dyn PhysicalExpr>| -> Arc<dyn PhysicalExpr> {
        Arc::new(BinaryExpr::new(Arc::clone(a), operator, Arc::clone(b)))
    };
    let Some(mut left) = factors(expr.left(), joined)? else { return Ok(None) };
    match expr.op() {
        Operator::Multiply => {
            let Some(right) = factors(expr.right(), joined)? else { return Ok(None) };
            for (factor, other) in left.iter_mut().zip(right) {
                *factor = match (factor.take(), other) {
                    (Some(a), Some(b)) => Some(with(&a, Operator::Multiply, &b)),
                    (a, b) => a.or(b),
                };
            }
            Ok(Some(left))
        }
        Operator::Divide => {
            // By what is of one input, where that has a factor which is divided.
            let side = match joined.sides_of(expr.right()).as_slice() {
                [] => left.iter().position(Option::is_some),
                [side] => Some(*side),
                _ => None,
            };
            let Some(factor) = side.and_then(|side| left[side].as_mut()) else { return Ok(None) };
            *factor = with(factor, Operator::Divide, expr.right());
            Ok(Some(left))
        }
        _ => Ok(None),
    }
}

/// `CASE WHEN condition THEN product END`
fn of_case(case: &CaseExpr, joined: &Joined) -> Result<Option<Factors>> {
    let is_null =
        |expr: &Arc<dyn PhysicalExpr>| expr.downcast_ref::<Literal>().is_some_and(|literal| literal.value().is_null());
    match (case.expr(), case.when_then_expr(), case.else_expr()) {
        (None, [(condition, value)], otherwise) if otherwise.is_none_or(is_null) => {
            let Some(factors) = factors(value, joined)? else { return Ok(None) };
            where_true(condition, factors, joined)
        }
        _ => Ok(None),
    }
}

/// Factors that are NULL where the part of a condition that is of their input is not true.
pub fn where_true(condition: &Arc<dyn PhysicalExpr>, mut factors: Factors, joined: &Joined) -> Result<Option<Factors>> {
    for part in split_conjunction(condition) {
        let side = match joined.sides_of(part).as_slice() {
            [] => 0,
            [side] => *side,
            _ => return Ok(None),
        };
        let factor = factors[side].take().unwrap_or_else(|| lit(1.0));
        let null = lit(ScalarValue::Float64(None));
        let is_double = joined.type_of(&factor)? == DataType::Float64;
        if !is_double {
            return Ok(None);
        }
        factors[side] = Some(Arc::new(CaseExpr::try_new(None, vec![(Arc::clone(part), factor)], Some(null))?));
    }
    Ok(Some(factors))
}
