//! Expressions over a join as products of expressions over its inputs.

use arrow::datatypes::DataType;
use datafusion_common::tree_node::TreeNode;
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::Operator;
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_expr::expressions::{BinaryExpr, CaseExpr, CastExpr, Literal, NegativeExpr, lit};
use datafusion_physical_expr::utils::split_conjunction;
use std::sync::Arc;

use super::join_tree::JoinTree;

/// A product with one factor per input, over the columns of all inputs. It is NULL where a factor is.
pub struct Product {
    /// The factors, `None` for 1.
    pub factors: Vec<Option<Arc<dyn PhysicalExpr>>>,
    /// Whether the product is rounded to single precision.
    pub single_precision: bool,
}

/// Splits an expression into a product that is NULL where a condition is not true. Returns `None` if it is no product.
pub fn as_product(
    expr: &Arc<dyn PhysicalExpr>,
    condition: Option<&Arc<dyn PhysicalExpr>>,
    tree: &JoinTree,
) -> Result<Option<Product>> {
    for part in condition.into_iter().chain([expr]) {
        if part.exists(|part| Ok(part.is_volatile_node()))? {
            return Ok(None);
        }
    }
    let Some((factors, single_precision)) = split_factors_with_precision(expr, tree)? else { return Ok(None) };
    let factors = match condition {
        Some(condition) => null_unless(condition, factors, tree)?,
        None => Some(factors),
    };
    Ok(factors.map(|factors| Product { factors, single_precision }))
}

/// The factor of each input, `None` for 1.
pub type Factors = Vec<Option<Arc<dyn PhysicalExpr>>>;

/// Splits an expression into factors, and returns whether their product is in single precision.
fn split_factors_with_precision(expr: &Arc<dyn PhysicalExpr>, tree: &JoinTree) -> Result<Option<(Factors, bool)>> {
    if let Some(cast) = expr.downcast_ref::<CastExpr>()
        && *cast.cast_type() == DataType::Float64
        && tree.type_of(cast.expr())? == DataType::Float32
        && let Some(product) = cast.expr().downcast_ref::<BinaryExpr>()
        && *product.op() == Operator::Multiply
    {
        // A product of several factors would be rounded several times.
        if let (Some(a), Some(b)) = (tree.side_of(product.left()), tree.side_of(product.right()))
            && a != b
        {
            let mut factors: Factors = vec![None; tree.inputs.len()];
            factors[a] = Some(Arc::clone(product.left()));
            factors[b] = Some(Arc::clone(product.right()));
            return Ok(Some((factors, true)));
        }
    }
    Ok(split_factors(expr, tree)?.map(|factors| (factors, false)))
}

/// Splits an expression into factors.
fn split_factors(expr: &Arc<dyn PhysicalExpr>, tree: &JoinTree) -> Result<Option<Factors>> {
    if let [] | [_] = tree.sides_of(expr).as_slice() {
        let mut factors: Factors = vec![None; tree.inputs.len()];
        factors[tree.side_of(expr).unwrap_or_default()] = Some(Arc::clone(expr));
        return Ok(Some(factors));
    }
    if tree.type_of(expr)? != DataType::Float64 {
        return Ok(None);
    }
    if let Some(product) = expr.downcast_ref::<BinaryExpr>() {
        return split_operator(product, tree);
    }
    if let Some(negative) = expr.downcast_ref::<NegativeExpr>() {
        let Some(mut factors) = split_factors(negative.arg(), tree)? else { return Ok(None) };
        let first = factors.iter_mut().flatten().next();
        first.into_iter().for_each(|factor| *factor = Arc::new(NegativeExpr::new(Arc::clone(factor))));
        return Ok(Some(factors));
    }
    if let Some(cast) = expr.downcast_ref::<CastExpr>() {
        return split_factors(cast.expr(), tree);
    }
    if let Some(case) = expr.downcast_ref::<CaseExpr>() {
        return split_case(case, tree);
    }
    Ok(None)
}

fn split_operator(expr: &BinaryExpr, tree: &JoinTree) -> Result<Option<Factors>> {
    let combine = |a: &Arc<dyn PhysicalExpr>, operator, b: &Arc<dyn PhysicalExpr>| -> Arc<dyn PhysicalExpr> {
        Arc::new(BinaryExpr::new(Arc::clone(a), operator, Arc::clone(b)))
    };
    let Some(mut left) = split_factors(expr.left(), tree)? else { return Ok(None) };
    match expr.op() {
        Operator::Multiply => {
            let Some(right) = split_factors(expr.right(), tree)? else { return Ok(None) };
            for (factor, other) in left.iter_mut().zip(right) {
                *factor = match (factor.take(), other) {
                    (Some(a), Some(b)) => Some(combine(&a, Operator::Multiply, &b)),
                    (a, b) => a.or(b),
                };
            }
            Ok(Some(left))
        }
        Operator::Divide => {
            // A divisor over one input divides the factor of that input.
            let side = match tree.sides_of(expr.right()).as_slice() {
                [] => left.iter().position(Option::is_some),
                [side] => Some(*side),
                _ => None,
            };
            let Some(factor) = side.and_then(|side| left[side].as_mut()) else { return Ok(None) };
            *factor = combine(factor, Operator::Divide, expr.right());
            Ok(Some(left))
        }
        _ => Ok(None),
    }
}

/// Splits `CASE WHEN condition THEN product END`.
fn split_case(case: &CaseExpr, tree: &JoinTree) -> Result<Option<Factors>> {
    let is_null =
        |expr: &Arc<dyn PhysicalExpr>| expr.downcast_ref::<Literal>().is_some_and(|literal| literal.value().is_null());
    match (case.expr(), case.when_then_expr(), case.else_expr()) {
        (None, [(condition, value)], otherwise) if otherwise.is_none_or(is_null) => {
            let Some(factors) = split_factors(value, tree)? else { return Ok(None) };
            null_unless(condition, factors, tree)
        }
        _ => Ok(None),
    }
}

/// Makes factors NULL where a condition is not true, each by the conjuncts over its own input.
pub fn null_unless(
    condition: &Arc<dyn PhysicalExpr>,
    mut factors: Factors,
    tree: &JoinTree,
) -> Result<Option<Factors>> {
    for part in split_conjunction(condition) {
        let side = match tree.sides_of(part).as_slice() {
            [] => 0,
            [side] => *side,
            _ => return Ok(None),
        };
        let factor = factors[side].take().unwrap_or_else(|| lit(1.0));
        let null = lit(ScalarValue::Float64(None));
        let is_double = tree.type_of(&factor)? == DataType::Float64;
        if !is_double {
            return Ok(None);
        }
        factors[side] = Some(Arc::new(CaseExpr::try_new(None, vec![(Arc::clone(part), factor)], Some(null))?));
    }
    Ok(Some(factors))
}
