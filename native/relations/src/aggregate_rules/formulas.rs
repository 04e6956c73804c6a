//! The derivatives of aggregates and window functions, one line each, as SQL over aggregates.
//!
//! In a line, `dx` is the tangent of the input `x`. Every call stands over the same rows as the function it is the derivative
//! of: with its `FILTER`, in its window. Rows in which an input is NULL take no part, and there the tangent is NULL as well.
//! Sums of products of deviations are written with `regr_sxy`, which, unlike `covar_samp`, works in sliding frames too.

use arrow::datatypes::FieldRef;
use datafusion_common::{Result, ScalarValue, internal_datafusion_err};
use datafusion_expr::{AggregateUDF, Expr, WindowFunctionDefinition, lit};
use datafusion_functions_aggregate::all_default_aggregate_functions;
use datafusion_functions_window::all_default_window_functions;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};
use xql_autodiff::rules::{Formula, Signature, Value};

use super::calls::{Argument, FormulaCall};
use super::frame_sums::FrameSum;

/// A line of the table: the derivative of a function by its tangents.
struct Line {
    signature: &'static str,
    tangent: &'static str,
    /// Whether equal values count for one, so that DISTINCT changes nothing.
    ignores_repetition: bool,
}

const fn line(signature: &'static str, tangent: &'static str) -> Line {
    Line { signature, tangent, ignores_repetition: false }
}

impl Line {
    const fn ignoring_repetition(self) -> Self {
        Self { ignores_repetition: true, ..self }
    }
}

const LINES: &[Line] = &[
    line("sum(x)", "sum(dx)"),
    line("avg(x)", "avg(dx)"),
    // The tangent of the row that is chosen; of rows with equal values the one whose tangent is the least or the greatest, so
    // that it is the derivative for a growing variable.
    line("min(x)", "arg_min(x, dx)").ignoring_repetition(),
    line("max(x)", "arg_max(x, dx)").ignoring_repetition(),
    // The value is linear in those of the rows between which it is.
    line("median(x)", "arg_quantile(x, dx)"),
    line("percentile_cont(x, p)", "arg_quantile(x, dx, p)"),
    line("var_pop(x)", "2 * regr_sxy(x, dx) / regr_count(x, dx)"),
    line("var(x)", "2 * regr_sxy(x, dx) / nullif(regr_count(x, dx) - 1, 0)"),
    // Of equal values the middle of the subdifferential, as for abs.
    line(
        "stddev_pop(x)",
        "CASE WHEN stddev_pop(x) = 0 THEN 0 ELSE regr_sxy(x, dx) / regr_count(x, dx) / stddev_pop(x) END",
    ),
    line(
        "stddev(x)",
        "CASE WHEN stddev(x) = 0 THEN 0 ELSE regr_sxy(x, dx) / nullif(regr_count(x, dx) - 1, 0) / stddev(x) END",
    ),
    line("covar_pop(y, x)", "(regr_sxy(dy, x) + regr_sxy(y, dx)) / regr_count(y, x)"),
    line("covar_samp(y, x)", "(regr_sxy(dy, x) + regr_sxy(y, dx)) / nullif(regr_count(y, x) - 1, 0)"),
    line(
        "corr(y, x)",
        "(regr_sxy(dy, x) + regr_sxy(y, dx)) / sqrt(regr_sxx(y, x) * regr_syy(y, x))
         - corr(y, x) * (regr_sxy(x, dx) / regr_sxx(y, x) + regr_sxy(y, dy) / regr_syy(y, x))",
    ),
    line(
        "regr_slope(y, x)",
        "(regr_sxy(dy, x) + regr_sxy(y, dx) - 2 * regr_slope(y, x) * regr_sxy(x, dx)) / regr_sxx(y, x)",
    ),
    line(
        "regr_intercept(y, x)",
        "avg(dy) - regr_slope(y, x) * avg(dx) - regr_avgx(y, x)
         * (regr_sxy(dy, x) + regr_sxy(y, dx) - 2 * regr_slope(y, x) * regr_sxy(x, dx)) / regr_sxx(y, x)",
    ),
    line(
        "regr_r2(y, x)",
        "2 * regr_sxy(y, x) * (regr_sxy(dy, x) + regr_sxy(y, dx)) / (regr_sxx(y, x) * regr_syy(y, x))
         - 2 * regr_r2(y, x) * (regr_sxy(x, dx) / regr_sxx(y, x) + regr_sxy(y, dy) / regr_syy(y, x))",
    ),
    line("regr_avgx(y, x)", "avg(dx)"),
    line("regr_avgy(y, x)", "avg(dy)"),
    line("regr_sxx(y, x)", "2 * regr_sxy(x, dx)"),
    line("regr_syy(y, x)", "2 * regr_sxy(y, dy)"),
    line("regr_sxy(y, x)", "regr_sxy(dy, x) + regr_sxy(y, dx)"),
    line("first_value(x)", "first_value(dx)"),
    line("last_value(x)", "last_value(dx)"),
    line("nth_value(x, n)", "nth_value(dx, n)"),
    line("lag(x)", "lag(dx)"),
    line("lag(x, n)", "lag(dx, n)"),
    line("lag(x, n, default)", "lag(dx, n, ddefault)"),
    line("lead(x)", "lead(dx)"),
    line("lead(x, n)", "lead(dx, n)"),
    line("lead(x, n, default)", "lead(dx, n, ddefault)"),
    // Those of this project.
    line("frame_sum(x, low, high)", "frame_sum(dx, low, high)"),
    line("sum_of_frames(x, low, high)", "sum_of_frames(dx, low, high)"),
    // Ranks jump.
    line("percent_rank()", "0"),
    line("cume_dist()", "0"),
];

/// The derivative of an aggregate or window function.
#[derive(Debug)]
pub struct TangentFormula {
    inputs: Vec<String>,
    formula: Formula,
    /// Whether equal values count for one, so that DISTINCT changes nothing.
    pub ignores_repetition: bool,
    /// Whether it is over pairs, so that a row takes part only if none of its inputs is NULL.
    pub pairs: bool,
}

static TABLE: LazyLock<Result<HashMap<(String, usize), TangentFormula>>> = LazyLock::new(|| {
    let read = LINES.iter().map(|line| {
        let Signature { name, inputs } = Signature::parse(line.signature)?;
        let (key, pairs) = ((name, inputs.len()), inputs == ["y", "x"]);
        let formula = Formula::parse(line.tangent)?;
        Ok((key, TangentFormula { inputs, formula, ignores_repetition: line.ignores_repetition, pairs }))
    });
    read.collect()
});

/// Returns the formula of a function of this name and number of inputs.
fn formula(name: &str, arity: usize) -> Result<Option<&'static TangentFormula>> {
    let table = TABLE.as_ref().map_err(|error| internal_datafusion_err!("the formulas cannot be read: {error}"))?;
    Ok(table.get(&(name.to_owned(), arity)))
}

/// Returns the formula of an aggregate or window function, if it is DataFusion's own, or one of this project, and has one.
pub fn tangent_formula(function: &WindowFunctionDefinition, arity: usize) -> Result<Option<&'static TangentFormula>> {
    let is_known = match function {
        WindowFunctionDefinition::AggregateUDF(udf) => aggregate(udf.name()).is_ok_and(|known| known == *udf),
        WindowFunctionDefinition::WindowUDF(udf) => {
            FrameSum::from_function(function).is_some() || all_default_window_functions().contains(udf)
        }
    };
    if is_known { formula(function.name(), arity) } else { Ok(None) }
}

/// DataFusion's own aggregate of this name.
pub fn aggregate(name: &str) -> Result<Arc<AggregateUDF>> {
    static AGGREGATES: LazyLock<Vec<Arc<AggregateUDF>>> = LazyLock::new(all_default_aggregate_functions);
    let known = AGGREGATES.iter().find(|known| known.name() == name);
    known
        .cloned()
        .ok_or_else(|| internal_datafusion_err!("a formula uses the aggregate {name}, which DataFusion lacks"))
}

/// The input of a function and its tangent, `None` where it does not vary.
#[derive(Debug)]
pub struct Input {
    /// The input.
    pub value: Expr,
    /// Its tangent.
    pub tangent: Option<Expr>,
}

/// What stands for a name in a call of a formula.
enum Named<'i> {
    Varies(Argument),
    /// The tangent of an input that does not vary, and the input.
    Zero(&'i Expr),
}

impl TangentFormula {
    /// Returns the derivative over what `value_of` gives for calls of aggregates and window functions, `None` if it is
    /// zero.
    pub fn evaluate(
        &self,
        inputs: &[Input],
        mut value_of: impl FnMut(FormulaCall) -> Result<(Expr, FieldRef)>,
    ) -> Result<Option<Expr>> {
        self.formula.evaluate_with(|function, names| {
            if names.is_empty() || names.iter().any(|name| self.argument(name, inputs).is_none()) {
                return Ok(None);
            }
            let arguments = names.iter().filter_map(|name| self.argument(name, inputs));
            let mut values = vec![];
            for (position, argument) in arguments.enumerate() {
                values.push(match argument {
                    Named::Varies(argument) => argument,
                    // The default of lag and lead.
                    Named::Zero(Expr::Literal(value, _)) if position == 2 && value.is_null() => {
                        Argument::Tangent(Expr::Literal(ScalarValue::Float64(None), None))
                    }
                    Named::Zero(_) if position == 2 => Argument::Tangent(lit(0.0)),
                    // A call is linear in tangents.
                    Named::Zero(_) => return Ok(Some(Value::Zero)),
                });
            }
            let (value, field) = value_of(FormulaCall::new(function, values)?)?;
            Ok(Some(Value::Input(value, field)))
        })
    }

    /// Returns what a name stands for: an input, or with `d` before it the tangent of one.
    fn argument<'i>(&self, name: &str, inputs: &'i [Input]) -> Option<Named<'i>> {
        let by_name = |name: &str| inputs.get(self.inputs.iter().position(|input| input == name)?);
        if let Some(input) = by_name(name) {
            return Some(Named::Varies(Argument::Value(input.value.clone())));
        }
        let Input { value, tangent } = by_name(name.strip_prefix('d')?)?;
        Some(tangent.clone().map_or(Named::Zero(value), |tangent| Named::Varies(Argument::Tangent(tangent))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::datatypes::{DataType, Field};
    use datafusion_common::Column;
    use datafusion_expr::col;

    #[test]
    fn every_line_parses_and_is_of_a_function_of_datafusion() -> Result<()> {
        let windows = all_default_window_functions();
        for line in LINES {
            let Signature { name, inputs } = Signature::parse(line.signature)?;
            assert!(formula(&name, inputs.len())?.is_some(), "{}", line.signature);
            let own = [FrameSum::OverFrame, FrameSum::OfFrames].iter().any(|sum| sum.name() == name);
            let known = own || aggregate(&name).is_ok() || windows.iter().any(|window| window.name() == name);
            assert!(known, "{}", line.signature);
        }
        Ok(())
    }

    /// Returns the tangent of a function whose inputs are columns of their names, over columns that are called as what they are.
    fn tangent(name: &str, varying: &[&str]) -> Result<Option<String>> {
        let arity = if name.starts_with("covar") { 2 } else { 1 };
        let formula = formula(name, arity)?.ok_or_else(|| internal_datafusion_err!("{name} has no formula"))?;
        let inputs: Vec<_> = formula
            .inputs
            .iter()
            .map(|input| Input {
                value: col(input),
                tangent: varying.contains(&input.as_str()).then(|| col(format!("d{input}"))),
            })
            .collect();
        let tangent = formula.evaluate(&inputs, |call| {
            let (function, arguments) = match call {
                FormulaCall::Statistic { function, arguments } | FormulaCall::OfRow { function, arguments } => {
                    (function, arguments)
                }
                FormulaCall::Pairs { input, tangent } => ("regr_count", vec![input, tangent]),
                FormulaCall::Sum { tangent } => ("sum", vec![tangent]),
                FormulaCall::Mean { tangent } => ("avg", vec![tangent]),
                FormulaCall::Deviations { input, tangent, is_tangent_first: false } => {
                    ("regr_sxy", vec![input, tangent])
                }
                FormulaCall::Deviations { input, tangent, .. } => ("regr_sxy", vec![tangent, input]),
                FormulaCall::Chosen { extremum, input, tangent } => (extremum.function(), vec![input, tangent]),
                FormulaCall::Quantile { input, tangent, .. } => ("quantile", vec![input, tangent]),
            };
            let arguments: Vec<_> = arguments.iter().map(ToString::to_string).collect();
            let data_type = if function == "regr_count" { DataType::UInt64 } else { DataType::Float64 };
            let name = format!("{function} {}", arguments.join(" "));
            Ok((Expr::Column(Column::new_unqualified(name)), Arc::new(Field::new(function, data_type, true))))
        })?;
        Ok(tangent.map(|tangent| tangent.human_display().to_string()))
    }

    /// The tangents of what does not vary vanish, and what they are multiplied with.
    #[test]
    fn zero_tangents_vanish() -> Result<()> {
        assert_eq!(tangent("sum", &[])?, None);
        assert_eq!(tangent("sum", &["x"])?.as_deref(), Some("sum dx"));
        let by_x = tangent("covar_samp", &["x"])?.unwrap_or_default();
        assert!(by_x.contains("regr_sxy y dx") && !by_x.contains("dy"), "{by_x}");
        let by_both = tangent("covar_samp", &["x", "y"])?.unwrap_or_default();
        assert!(by_both.contains("regr_sxy y dx") && by_both.contains("regr_sxy dy x"), "{by_both}");
        Ok(())
    }

    /// nullif is DataFusion's function with both of its arguments.
    #[test]
    fn scalar_functions_are_called_with_all_their_arguments() -> Result<()> {
        let variance = tangent("var", &["x"])?.unwrap_or_default();
        assert!(variance.contains("nullif(CAST(regr_count x dx AS Float64) - Float64(1), Float64(0))"), "{variance}");
        Ok(())
    }
}
