//! Tangents of values that are equal in all rows of a group, such as keys.

use arrow::datatypes::DataType;
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::{Expr, lit, when};
use datafusion_functions_aggregate::expr_fn::{max, min};

use super::direction::Direction;
use crate::aggregate_rules::Guarded;
use crate::tangents::tangent::{Inactive, Tangent};
use crate::vocabulary::expressions::one_zero;
use crate::vocabulary::names::Names;

/// The tangents that are equal in all rows of a group. Aggregates of the group, its least and greatest tangent, tell
/// whether they are, and the tangent is NaN if they differ.
#[derive(Debug, Default)]
pub struct EqualTangents {
    /// The aggregates of the node, and after them those that compare tangents.
    pub aggregates: Vec<Expr>,
    /// The tangents over them.
    pub exprs: Vec<Expr>,
}

/// A tangent in the rows of a group. It is NULL in all of them or in none.
#[derive(Debug)]
pub struct InRows<'n> {
    /// The tangent.
    pub tangent: Expr,
    /// Where it is 0 because branches are taken that do not vary.
    pub inactive: Option<Expr>,
    /// The key whose tangent it is, if grouping sets may roll that up. It is NULL where they do, and so is its tangent: of
    /// `GROUP BY w, ROLLUP(v)` the second set has all values of `v` in one group, whose `v` is NULL.
    pub rolled_up: Option<Expr>,
    /// The type of the tangent.
    pub data_type: DataType,
    /// The column whose tangent it is.
    pub column: &'n str,
}

impl EqualTangents {
    /// Adds a tangent in a direction.
    pub fn add(&mut self, in_rows: InRows, direction: &Direction, names: &mut Names) -> Result<Tangent> {
        let InRows { tangent, inactive, rolled_up, data_type, column } = in_rows;
        let mut end = |of_all: Expr, end: &str| {
            let part = |names: &mut Names| names.part(&format!("{column} {end}"));
            Expr::Column(names.column(of_all, &mut self.aggregates, part))
        };
        let (low, high) = (end(min(tangent.clone()), "low"), end(max(tangent), "high"));
        let none = Expr::Literal(ScalarValue::from(f64::NAN).cast_to(&data_type)?, None);
        let differ = one_zero(low.clone(), &data_type)?.not_eq(one_zero(high, &data_type)?);
        let agreed = when(differ, none).otherwise(low)?;
        let agreed = match rolled_up {
            Some(key) => when(key.is_not_null(), agreed).end()?,
            None => agreed,
        };
        let inactive = match inactive {
            Some(inactive) => Some(end(min(Inactive::number(inactive)?), "inactive").eq(lit(1_i64))),
            None => None,
        };
        let guarded = Guarded { tangent: agreed, inactive };
        direction.add_guarded(guarded, (column, data_type), &mut self.exprs, names)
    }
}
