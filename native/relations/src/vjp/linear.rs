//! Expressions whose cotangents are products.

use arrow::datatypes::DataType;
use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{Column, Result};
use datafusion_expr::utils::conjunction;
use datafusion_expr::{Cast, Expr, cast, when};
use xql_autodiff::is_smooth;
use xql_autodiff::vocabulary::columns::columns_followed;
use xql_autodiff::vocabulary::opaque_expr::unwrap_opaque;

use super::segment::Segment;

/// An expression that propagates its cotangent to its inputs as a product, with finite partial derivatives.
pub struct Linear {
    /// The columns whose NULLs `COALESCE` replaces by a constant: `w.val` of `x.val * COALESCE(w.val, 0)`. A NULL in
    /// such a column gets no cotangent.
    filled: Vec<Expr>,
}

impl Linear {
    /// Recognizes an expression whose inputs get its cotangent times a partial derivative. Returns `None` if a partial
    /// derivative may be infinite, and so meet a cotangent of 0.
    pub fn match_expr(expr: &Expr, segment: &Segment) -> Result<Option<Self>> {
        let varies = |expr: &Expr| !segment.varying_in(expr).is_empty();
        let mut filled = vec![];
        let known = unwrap_opaque(expr.clone())?.data.transform_up(|part| {
            chosen(part)?.transform_data(|part| match taken(&part, varies) {
                Some(taken) => {
                    filled.push(taken.clone());
                    Ok(Transformed::yes(taken))
                }
                None => Ok(Transformed::no(part)),
            })
        })?;
        let varying = |column: &Column| segment.varying.contains(&column.name);
        Ok(is_smooth(&known.data, segment.plan.schema(), varying)?.then_some(Self { filled }))
    }

    /// Masks a partial derivative by a column: it is NULL where the column is filled.
    pub fn partial(&self, input: &Column, derivative: Expr) -> Result<Expr> {
        let filled = self.filled.iter().filter(|filled| columns_followed(filled).contains(input));
        match conjunction(filled.map(|filled| filled.clone().is_not_null())) {
            Some(is_known) => Ok(cast(when(is_known, derivative).end()?, DataType::Float64)),
            None => Ok(derivative),
        }
    }
}

/// Rewrites `COALESCE(a, b, c)` as `CASE WHEN a IS NOT NULL THEN a WHEN b IS NOT NULL THEN b ELSE c END`.
fn chosen(expr: Expr) -> Result<Transformed<Expr>> {
    match &expr {
        Expr::ScalarFunction(call) if call.func.name() == "coalesce" && call.func.short_circuits() => {
            let [first, others @ .., last] = call.args.as_slice() else { return Ok(Transformed::no(expr)) };
            let mut case = when(first.clone().is_not_null(), first.clone());
            for other in others {
                case = case.when(other.clone().is_not_null(), other.clone());
            }
            case.otherwise(last.clone()).map(Transformed::yes)
        }
        _ => Ok(Transformed::no(expr)),
    }
}

/// Returns the column whose NULLs an expression replaces by a constant: `w.val` of `COALESCE(w.val, 0)`. Only a bare
/// column qualifies, because it has no derivative where it is NULL. `w.val + COALESCE(w.val * w.u, 0)` has one where
/// `w.u` is NULL.
fn taken(expr: &Expr, varies: impl Fn(&Expr) -> bool) -> Option<Expr> {
    let Expr::Case(case) = expr else { return None };
    let [(condition, first), others @ ..] = case.when_then_expr.as_slice() else { return None };
    let mut others = others.iter().flat_map(|(condition, value)| [condition, value]).chain(&case.else_expr);
    let is_taken = matches!(condition.as_ref(), Expr::IsNotNull(known) if known == first) && case.expr.is_none();
    (is_taken && is_column(first) && varies(first) && !others.any(|other| varies(other)))
        .then(|| first.as_ref().clone())
}

/// Returns whether an expression is a column, possibly cast to another float type.
fn is_column(expr: &Expr) -> bool {
    match expr {
        Expr::Column(_) => true,
        Expr::Cast(Cast { expr, field }) => is_column(expr) && field.data_type().is_floating(),
        _ => false,
    }
}
