//! The shares that rows have in a quantile.
//!
//! A quantile of `n` values is at the place `p * (n - 1)` in their order, counted from 0, or between the two values around it, by how far it
//! is from each (definition 7 of Hyndman and Fan, Sample Quantiles in Statistical Packages, 1996). So the values have shares in it, which
//! equal ones have evenly:
//!
//! ```text
//! x                                         1.0   2.0   2.0   5.0
//! rank() OVER (ORDER BY x)                    1     2     2     4
//! count(x) OVER (ORDER BY x)                  1     3     3     4
//! its share in percentile_cont(x, 0.9)                0.15  0.15  0.7
//! ```
//!
//! The value is linear in the values between which it is, so that its derivative is the sum of theirs, each times its share.

use arrow::datatypes::DataType;
use datafusion_common::{DFSchema, Result, ScalarValue, plan_err};
use datafusion_expr::expr::{Sort, WindowFunction, WindowFunctionParams};
use datafusion_expr::{
    Expr, ExprSchemable, Operator, WindowFrame, WindowFrameBound, WindowFrameUnits, WindowFunctionDefinition,
    binary_expr, cast, lit,
};
use datafusion_functions::core::expr_fn::{greatest, least, nullif};
use datafusion_functions::math::expr_fn::{floor, trunc};
use datafusion_functions_aggregate::count::count_udaf;
use datafusion_functions_window::rank::rank_udwf;

use crate::version::GROUPS_ZEROS;
use crate::vocabulary::expressions::{one_zero, unaliased};

/// Into how many parts DataFusion divides the way from one value to the next: it cuts what is beyond the sixth digit.
const PARTS: f64 = 1e6;

/// Which quantile it is.
#[derive(Debug, Clone, PartialEq)]
pub enum Percentile {
    /// That in the middle.
    Half,
    /// This part of the values is below it.
    Part(Expr),
}

impl Percentile {
    /// That with this part of the values below it.
    ///
    /// # Errors
    /// A plan error if it is a number that is no part, as DataFusion has it where it computes the quantile.
    pub fn try_new(part: Expr) -> Result<Self> {
        if let Expr::Literal(value, _) = &part
            && let ScalarValue::Float64(Some(number)) = value.cast_to(&DataType::Float64)?
            && !(0.0..=1.0).contains(&number)
        {
            return plan_err!("Percentile value must be between 0.0 and 1.0 inclusive, {number} is invalid");
        }
        Ok(Self::Part(part))
    }
}

/// Returns whether an aggregate of this name is a quantile.
pub fn is_quantile(function: &str) -> bool {
    matches!(function, "median" | "percentile_cont")
}

/// Returns the keys of groups as keys of partitions with the same rows.
pub fn keys_of_partitions(keys: &[Expr], schema: &DFSchema) -> Result<Vec<Expr>> {
    let key = |key: &Expr| {
        let data_type = key.get_type(schema)?;
        let key = unaliased(key).clone();
        if GROUPS_ZEROS { one_zero(key, &data_type) } else { Ok(key) }
    };
    keys.iter().filter(|key| !matches!(unaliased(key), Expr::Literal(..))).map(key).collect()
}

/// Returns the window functions from which the share of a row in a quantile of its group follows: how many values come before those equal
/// to its own, and one more; how many come up to those; and how many there are. A value that is NULL takes no part. `then_by` orders
/// equal ones.
pub fn ranks(keys: &[Expr], value: &Expr, then_by: Option<Expr>) -> [Expr; 3] {
    use WindowFrameBound::{CurrentRow, Following, Preceding};
    let order_by = [Some(value.clone()), then_by].into_iter().flatten();
    let order_by: Vec<_> = order_by.map(|key| Sort::new(key, true, false)).collect();
    let over = |fun: WindowFunctionDefinition, args: Vec<Expr>, end: WindowFrameBound| {
        let start = Preceding(ScalarValue::Null);
        let params = WindowFunctionParams {
            partition_by: keys.to_vec(),
            order_by: order_by.clone(),
            window_frame: WindowFrame::new_bounds(WindowFrameUnits::Range, start, end),
            ..WindowFunction::new(fun.clone(), args).params
        };
        Expr::from(WindowFunction { fun, params })
    };
    let count = |end| over(WindowFunctionDefinition::AggregateUDF(count_udaf()), vec![value.clone()], end);
    let first = over(WindowFunctionDefinition::WindowUDF(rank_udwf()), vec![], CurrentRow);
    [first, count(CurrentRow), count(Following(ScalarValue::Null))]
}

/// Returns the share of a row with these ranks in a quantile; NULL where it has none.
///
/// The values up to the `i`-th have all of it together if `i` is beyond the place, and the part by which it is not less than one short of
/// it otherwise. What equal values have is the difference of two such sums.
pub fn share(ranks: [Expr; 3], percentile: &Percentile, is_descending: bool) -> Expr {
    let [first, last, values] = ranks.map(|rank| cast(rank, DataType::Float64));
    let place = place(minus(values, lit(1.0)), percentile, is_descending);
    let up_to = |rank: Expr| least(vec![greatest(vec![minus(rank, place.clone()), lit(0.0)]), lit(1.0)]);
    let before = minus(first, lit(1.0));
    let of_equal = minus(up_to(last.clone()), up_to(before.clone()));
    nullif(divided(of_equal, nullif(minus(last, before), lit(0.0))), lit(0.0))
}

/// Returns the place of a quantile among so many values and one, from 0 on.
fn place(values: Expr, percentile: &Percentile, is_descending: bool) -> Expr {
    let part = match percentile {
        Percentile::Half => return times(lit(0.5), values),
        Percentile::Part(part) if is_descending => minus(lit(1.0), part.clone()),
        Percentile::Part(part) => part.clone(),
    };
    let place = times(part, values);
    let whole = floor(place.clone());
    let beyond = divided(trunc(vec![times(minus(place, whole.clone()), lit(PARTS))]), lit(PARTS));
    binary_expr(whole, Operator::Plus, beyond)
}

fn times(a: Expr, b: Expr) -> Expr {
    binary_expr(a, Operator::Multiply, b)
}

fn minus(a: Expr, b: Expr) -> Expr {
    binary_expr(a, Operator::Minus, b)
}

fn divided(a: Expr, b: Expr) -> Expr {
    binary_expr(a, Operator::Divide, b)
}
