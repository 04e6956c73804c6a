//! The calls in formulas of tangents: what a formula computes over the rows of its function.

use datafusion_common::{Result, internal_err};
use datafusion_expr::Expr;

use super::frame_sums::FrameSum;
use super::quantiles::Percentile;

/// A call in a formula. Each but the first two is linear in the tangent `dx`.
///
/// It is evaluated in three ways: as a call over the same rows (`rows`), as a sum over the rows with the row's own
/// value of the variable (`own_row`), and as the contribution of one row (in reverse mode, `partials`).
#[derive(Debug, Clone, PartialEq)]
pub enum FormulaCall<'f> {
    /// A function of inputs alone: `avg(x)`, `regr_count(y, x)`.
    Statistic {
        /// Its name.
        function: &'f str,
        /// The inputs.
        arguments: Vec<Expr>,
    },
    /// `regr_count(x, dx)`: in how many rows neither is NULL.
    Pairs {
        /// `x`.
        input: Expr,
        /// `dx`.
        tangent: Expr,
    },
    /// `sum(dx)`.
    Sum {
        /// `dx`.
        tangent: Expr,
    },
    /// `avg(dx)`.
    Mean {
        /// `dx`.
        tangent: Expr,
    },
    /// `regr_sxy(x, dx)` or `regr_sxy(dx, x)`: the sum of the deviations of `x` from its mean, each times its tangent.
    Deviations {
        /// `x`.
        input: Expr,
        /// `dx`.
        tangent: Expr,
        /// Whether the tangent stands first.
        is_tangent_first: bool,
    },
    /// `arg_min(x, dx)` or `arg_max(x, dx)`: the tangent of the row with the least or greatest value.
    Chosen {
        /// Which one.
        extremum: Extremum,
        /// `x`.
        input: Expr,
        /// `dx`.
        tangent: Expr,
    },
    /// `arg_quantile(x, dx)` or `arg_quantile(x, dx, p)`: the tangents of the rows that have a share in a quantile, each times this share.
    Quantile {
        /// Which one.
        percentile: Percentile,
        /// `x`.
        input: Expr,
        /// `dx`.
        tangent: Expr,
    },
    /// The function itself of tangents, which has that of the row whose value it has, `first_value(dx)`, `lag(dx, n, ddefault)`, or
    /// sums them over rows that do not depend on the input.
    OfRow {
        /// Its name.
        function: &'f str,
        /// The tangents, and what tells the row.
        arguments: Vec<Expr>,
    },
}

/// The least or the greatest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extremum {
    /// The least.
    Min,
    /// The greatest.
    Max,
}

impl Extremum {
    /// Returns the aggregate that gives it.
    pub fn function(self) -> &'static str {
        match self {
            Self::Min => "min",
            Self::Max => "max",
        }
    }
}

/// The meaning of a name in a call of a formula.
#[derive(Debug, Clone, PartialEq)]
pub enum Argument {
    /// An input.
    Value(Expr),
    /// The tangent of an input.
    Tangent(Expr),
}

impl Argument {
    fn expr(self) -> Expr {
        match self {
            Self::Value(expr) | Self::Tangent(expr) => expr,
        }
    }
}

impl<'f> FormulaCall<'f> {
    /// Creates the call of a function with these arguments.
    pub fn new(function: &'f str, arguments: Vec<Argument>) -> Result<Self> {
        use Argument::{Tangent, Value};
        Ok(match (function, arguments.as_slice()) {
            (_, arguments) if arguments.iter().all(|argument| matches!(argument, Value(_))) => {
                Self::Statistic { function, arguments: arguments.iter().cloned().map(Argument::expr).collect() }
            }
            ("sum", [Tangent(tangent)]) => Self::Sum { tangent: tangent.clone() },
            ("avg", [Tangent(tangent)]) => Self::Mean { tangent: tangent.clone() },
            ("regr_count", [Value(input), Tangent(tangent)]) => {
                Self::Pairs { input: input.clone(), tangent: tangent.clone() }
            }
            ("regr_sxy", [Value(input), Tangent(tangent)]) => {
                Self::Deviations { input: input.clone(), tangent: tangent.clone(), is_tangent_first: false }
            }
            ("regr_sxy", [Tangent(tangent), Value(input)]) => {
                Self::Deviations { input: input.clone(), tangent: tangent.clone(), is_tangent_first: true }
            }
            ("arg_min" | "arg_max", [Value(input), Tangent(tangent)]) => {
                let extremum = if function == "arg_min" { Extremum::Min } else { Extremum::Max };
                Self::Chosen { extremum, input: input.clone(), tangent: tangent.clone() }
            }
            ("arg_quantile", [Value(input), Tangent(tangent), percentile @ ..]) if percentile.len() < 2 => {
                let percentile = percentile.first().cloned().map(Argument::expr);
                let percentile = percentile.map_or(Ok(Percentile::Half), Percentile::try_new)?;
                Self::Quantile { percentile, input: input.clone(), tangent: tangent.clone() }
            }
            (function, [Tangent(_), ..]) if is_choice(function) || is_frame_sum(function) => {
                Self::OfRow { function, arguments: arguments.iter().cloned().map(Argument::expr).collect() }
            }
            _ => return internal_err!("a formula has {function} of a tangent, which is not known to be linear"),
        })
    }
}

/// Returns whether a function of this name sums rows by their numbers.
fn is_frame_sum(function: &str) -> bool {
    [FrameSum::OverFrame, FrameSum::OfFrames].iter().any(|sum| sum.name() == function)
}

/// Returns whether a function of this name chooses one row by its place in an order, and has its value.
pub fn is_choice(function: &str) -> bool {
    matches!(function, "lag" | "lead" | "first_value" | "last_value" | "nth_value")
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion_expr::col;

    #[test]
    fn a_call_is_told_by_what_is_a_tangent_in_it() -> Result<()> {
        let (x, dx) = (|| Argument::Value(col("x")), || Argument::Tangent(col("dx")));
        let (input, tangent) = (col("x"), col("dx"));
        let statistic = FormulaCall::Statistic { function: "sum", arguments: vec![input.clone()] };
        assert_eq!(FormulaCall::new("sum", vec![x()])?, statistic);
        assert_eq!(FormulaCall::new("sum", vec![dx()])?, FormulaCall::Sum { tangent: tangent.clone() });
        let deviations = |is_tangent_first| FormulaCall::Deviations {
            input: input.clone(),
            tangent: tangent.clone(),
            is_tangent_first,
        };
        assert_eq!(FormulaCall::new("regr_sxy", vec![x(), dx()])?, deviations(false));
        assert_eq!(FormulaCall::new("regr_sxy", vec![dx(), x()])?, deviations(true));
        Ok(())
    }

    #[test]
    fn a_call_that_is_not_linear_is_no_call_of_a_formula() {
        assert!(FormulaCall::new("stddev", vec![Argument::Tangent(col("dx"))]).is_err());
        assert!(FormulaCall::new("regr_sxy", vec![Argument::Tangent(col("dx")); 2]).is_err());
    }
}
