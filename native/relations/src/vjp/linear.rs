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

/// An expression that varies, for the cotangents of what it is computed from.
pub struct Linear {
    /// The columns that `COALESCE` fills with something that does not vary: `w.val` of `x.val * COALESCE(w.val, 0)`. Where one is NULL,
    /// nothing contributes to it.
    filled: Vec<Expr>,
}

impl Linear {
    /// Returns an expression whose cotangents are its own, each times a partial derivative, none if 0 may meet a derivative that is
    /// infinite.
    pub fn of(expr: &Expr, segment: &Segment) -> Result<Option<Self>> {
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

    /// Returns the partial derivative by a column, where there is one.
    pub fn partial(&self, input: &Column, derivative: Expr) -> Result<Expr> {
        let filled = self.filled.iter().filter(|filled| columns_followed(filled).contains(input));
        match conjunction(filled.map(|filled| filled.clone().is_not_null())) {
            Some(is_known) => Ok(cast(when(is_known, derivative).end()?, DataType::Float64)),
            None => Ok(derivative),
        }
    }
}

/// `COALESCE(a, b, c)` as `CASE WHEN a IS NOT NULL THEN a WHEN b IS NOT NULL THEN b ELSE c END`, all else as it is.
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

/// Returns the column that an expression takes unless it is NULL, if what takes its place then does not vary: `w.val` of
/// `COALESCE(w.val, 0)`. A column alone, as there is nothing to differentiate by where it is NULL: in `w.val + COALESCE(w.val * w.u,
/// 0)` there is.
fn taken(expr: &Expr, varies: impl Fn(&Expr) -> bool) -> Option<Expr> {
    let Expr::Case(case) = expr else { return None };
    let [(condition, first), others @ ..] = case.when_then_expr.as_slice() else { return None };
    let mut others = others.iter().flat_map(|(condition, value)| [condition, value]).chain(&case.else_expr);
    let is_taken = matches!(condition.as_ref(), Expr::IsNotNull(known) if known == first) && case.expr.is_none();
    (is_taken && is_column(first) && varies(first) && !others.any(|other| varies(other)))
        .then(|| first.as_ref().clone())
}

/// Returns whether an expression is a column, in whatever precision.
fn is_column(expr: &Expr) -> bool {
    match expr {
        Expr::Column(_) => true,
        Expr::Cast(Cast { expr, field }) => is_column(expr) && field.data_type().is_floating(),
        _ => false,
    }
}
