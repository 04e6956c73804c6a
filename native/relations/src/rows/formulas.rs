//! The derivatives of aggregates and window functions, one line each, as SQL over aggregates.
//!
//! In a line, `dx` is the tangent of the input `x`. Every call stands over the same rows as the function it is the derivative
//! of: with its `FILTER`, in its window. Rows in which an input is NULL take no part, and there the tangent is NULL as well.
//! Sums of products of deviations are written with `regr_sxy`, which, unlike `covar_samp`, works in sliding frames too.

use datafusion_common::{Result, ScalarValue, internal_datafusion_err, internal_err};
use datafusion_expr::{AggregateUDF, BinaryExpr, Expr, Operator, WindowFunctionDefinition, lit, when};
use datafusion_functions::core::expr_fn::nullif;
use datafusion_functions_aggregate::all_default_aggregate_functions;
use datafusion_functions_window::all_default_window_functions;
use sqlparser::ast::{BinaryOperator, Expr as Sql, UnaryOperator, Value};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use super::Rows;
use xql_autodiff::rules::syntax::{Signature, call_of, name_of, parse};

/// The derivative of a function by its tangents, as a line of the table.
const FORMULAS: &[(&str, &str)] = &[
    ("sum(x)", "sum(dx)"),
    ("avg(x)", "avg(dx)"),
    // The tangent of the row that is chosen; of rows with equal values the one whose tangent is the least or the greatest, so
    // that it is the derivative for a growing variable.
    ("min(x)", "arg_min(x, dx)"),
    ("max(x)", "arg_max(x, dx)"),
    ("var_pop(x)", "2 * regr_sxy(x, dx) / regr_count(x, dx)"),
    ("var(x)", "2 * regr_sxy(x, dx) / nullif(regr_count(x, dx) - 1, 0)"),
    // Of equal values the middle of the subdifferential, as for abs.
    ("stddev_pop(x)", "zero_over_zero(regr_sxy(x, dx) / regr_count(x, dx), stddev_pop(x))"),
    ("stddev(x)", "zero_over_zero(regr_sxy(x, dx) / nullif(regr_count(x, dx) - 1, 0), stddev(x))"),
    ("covar_pop(y, x)", "(regr_sxy(dy, x) + regr_sxy(y, dx)) / regr_count(y, x)"),
    ("covar_samp(y, x)", "(regr_sxy(dy, x) + regr_sxy(y, dx)) / nullif(regr_count(y, x) - 1, 0)"),
    (
        "corr(y, x)",
        "(regr_sxy(dy, x) + regr_sxy(y, dx)) / sqrt(regr_sxx(y, x) * regr_syy(y, x))
         - corr(y, x) * (regr_sxy(x, dx) / regr_sxx(y, x) + regr_sxy(y, dy) / regr_syy(y, x))",
    ),
    (
        "regr_slope(y, x)",
        "(regr_sxy(dy, x) + regr_sxy(y, dx) - 2 * regr_slope(y, x) * regr_sxy(x, dx)) / regr_sxx(y, x)",
    ),
    (
        "regr_intercept(y, x)",
        "avg(dy) - regr_slope(y, x) * avg(dx) - regr_avgx(y, x)
         * (regr_sxy(dy, x) + regr_sxy(y, dx) - 2 * regr_slope(y, x) * regr_sxy(x, dx)) / regr_sxx(y, x)",
    ),
    (
        "regr_r2(y, x)",
        "2 * regr_sxy(y, x) * (regr_sxy(dy, x) + regr_sxy(y, dx)) / (regr_sxx(y, x) * regr_syy(y, x))
         - 2 * regr_r2(y, x) * (regr_sxy(x, dx) / regr_sxx(y, x) + regr_sxy(y, dy) / regr_syy(y, x))",
    ),
    ("regr_avgx(y, x)", "avg(dx)"),
    ("regr_avgy(y, x)", "avg(dy)"),
    ("regr_sxx(y, x)", "2 * regr_sxy(x, dx)"),
    ("regr_syy(y, x)", "2 * regr_sxy(y, dy)"),
    ("regr_sxy(y, x)", "regr_sxy(dy, x) + regr_sxy(y, dx)"),
    ("first_value(x)", "first_value(dx)"),
    ("last_value(x)", "last_value(dx)"),
    ("nth_value(x, n)", "nth_value(dx, n)"),
    ("lag(x)", "lag(dx)"),
    ("lag(x, n)", "lag(dx, n)"),
    ("lag(x, n, default)", "lag(dx, n, ddefault)"),
    ("lead(x)", "lead(dx)"),
    ("lead(x, n)", "lead(dx, n)"),
    ("lead(x, n, default)", "lead(dx, n, ddefault)"),
    // Ranks jump.
    ("percent_rank()", "0"),
    ("cume_dist()", "0"),
];

/// A line of the table, parsed.
#[derive(Debug)]
pub struct Formula {
    inputs: Vec<String>,
    tangent: Sql,
    /// Whether it is over pairs, so that a row takes part only if none of its inputs is NULL.
    pub pairs: bool,
}

static TABLE: LazyLock<Result<HashMap<(String, usize), Formula>>> = LazyLock::new(|| {
    let lines = FORMULAS.iter().map(|(signature, tangent)| {
        let Signature { name, inputs } = Signature::parse(signature)?;
        let pairs = inputs == ["y", "x"];
        Ok(((name, inputs.len()), Formula { inputs, tangent: parse(tangent)?, pairs }))
    });
    lines.collect()
});

/// The formula of a function of this name and number of inputs.
fn formula(name: &str, arity: usize) -> Result<Option<&'static Formula>> {
    let table = TABLE.as_ref().map_err(|error| internal_datafusion_err!("the formulas cannot be read: {error}"))?;
    Ok(table.get(&(name.to_owned(), arity)))
}

/// The formula of an aggregate or window function, if it is DataFusion's own and has one.
pub fn of(function: &WindowFunctionDefinition, arity: usize) -> Result<Option<&'static Formula>> {
    let own = match function {
        WindowFunctionDefinition::AggregateUDF(udf) => aggregate(udf.name()).is_ok_and(|own| own == *udf),
        WindowFunctionDefinition::WindowUDF(udf) => all_default_window_functions().contains(udf),
    };
    if own { formula(function.name(), arity) } else { Ok(None) }
}

/// DataFusion's own aggregate of this name.
pub fn aggregate(name: &str) -> Result<Arc<AggregateUDF>> {
    static OWN: LazyLock<Vec<Arc<AggregateUDF>>> = LazyLock::new(all_default_aggregate_functions);
    let own = OWN.iter().find(|own| own.name() == name);
    own.cloned().ok_or_else(|| internal_datafusion_err!("a formula uses the aggregate {name}, which DataFusion lacks"))
}

/// The input of a function and its tangent, `None` where it does not vary.
#[derive(Debug)]
pub struct Input {
    pub value: Expr,
    pub tangent: Option<Expr>,
}

impl Formula {
    /// The derivative, `None` if it is zero.
    pub fn evaluate(&self, inputs: &[Input], over: &mut Rows) -> Result<Option<Expr>> {
        self.expression(&self.tangent, inputs, over)
    }

    /// The input of this name and whether its tangent is meant.
    fn input<'i>(&self, name: &str, inputs: &'i [Input]) -> Result<(&'i Input, bool)> {
        let by_name = |name: &str| {
            let position = self.inputs.iter().position(|input| input == name)?;
            inputs.get(position)
        };
        by_name(name)
            .map(|input| (input, false))
            .or_else(|| by_name(name.strip_prefix('d')?).map(|input| (input, true)))
            .ok_or_else(|| internal_datafusion_err!("a formula names no input {name}"))
    }

    fn expression(&self, sql: &Sql, inputs: &[Input], over: &mut Rows) -> Result<Option<Expr>> {
        match sql {
            Sql::Nested(inner) => self.expression(inner, inputs, over),
            Sql::Value(value) => match &value.value {
                Value::Number(digits, _) => {
                    let number: f64 = digits.parse().map_err(|_| internal_datafusion_err!("{digits} is no number"))?;
                    Ok((number != 0.0).then(|| lit(number)))
                }
                _ => internal_err!("a formula cannot be written with {sql}"),
            },
            Sql::UnaryOp { op: UnaryOperator::Minus, expr } => {
                Ok(self.expression(expr, inputs, over)?.map(|operand| Expr::Negative(Box::new(operand))))
            }
            Sql::BinaryOp { left, op, right } => {
                let (a, b) = (self.expression(left, inputs, over)?, self.expression(right, inputs, over)?);
                let binary = |a, op, b| Expr::BinaryExpr(BinaryExpr::new(Box::new(a), op, Box::new(b)));
                Ok(match (op, a, b) {
                    (BinaryOperator::Plus, Some(a), Some(b)) => Some(binary(a, Operator::Plus, b)),
                    (BinaryOperator::Plus, a, b) => a.or(b),
                    (BinaryOperator::Minus, Some(a), Some(b)) => Some(binary(a, Operator::Minus, b)),
                    (BinaryOperator::Minus, None, b) => b.map(|b| Expr::Negative(Box::new(b))),
                    (BinaryOperator::Minus, a, None) => a,
                    (BinaryOperator::Multiply, Some(a), Some(b)) => Some(binary(a, Operator::Multiply, b)),
                    (BinaryOperator::Divide, Some(a), Some(b)) => Some(binary(a, Operator::Divide, b)),
                    (BinaryOperator::Multiply | BinaryOperator::Divide, ..) => None,
                    _ => return internal_err!("a formula cannot be written with {op}"),
                })
            }
            call => {
                let (name, arguments) = call_of(call)?;
                if let ("nullif", [value, _]) = (name.as_str(), arguments.as_slice()) {
                    return Ok(self.expression(value, inputs, over)?.map(|value| nullif(value, lit(0.0))));
                }
                // a / b, and 0 where b is 0.
                if let ("zero_over_zero", [a, b]) = (name.as_str(), arguments.as_slice()) {
                    let (a, b) = (self.expression(a, inputs, over)?, self.expression(b, inputs, over)?);
                    let (Some(a), Some(b)) = (a, b) else { return Ok(None) };
                    let quotient =
                        Expr::BinaryExpr(BinaryExpr::new(Box::new(a), Operator::Divide, Box::new(b.clone())));
                    return when(b.eq(lit(0.0)), lit(0.0)).otherwise(quotient).map(Some);
                }
                if let ("sqrt", [value]) = (name.as_str(), arguments.as_slice()) {
                    let value = self.expression(value, inputs, over)?;
                    return Ok(value.map(datafusion_functions::math::expr_fn::sqrt));
                }
                self.call(&name, &arguments, inputs, over)
            }
        }
    }

    /// A call over inputs. It is linear in tangents, so it is zero if its first one is.
    fn call(&self, name: &str, arguments: &[&Sql], inputs: &[Input], over: &mut Rows) -> Result<Option<Expr>> {
        let mut values = vec![];
        for (position, argument) in arguments.iter().enumerate() {
            let (input, is_tangent) = self.input(&name_of(argument).unwrap_or_default(), inputs)?;
            values.push(match (&input.tangent, is_tangent) {
                (_, false) => input.value.clone(),
                (Some(tangent), true) => tangent.clone(),
                // The default of lag and lead.
                (None, true) if position == 2 => match &input.value {
                    Expr::Literal(value, _) if value.is_null() => Expr::Literal(ScalarValue::Float64(None), None),
                    _ => lit(0.0),
                },
                (None, true) => return Ok(None),
            });
        }
        over.call(name, values).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_parses_and_is_of_a_function_of_datafusion() -> Result<()> {
        let windows = all_default_window_functions();
        for (signature, tangent) in FORMULAS {
            let name = Signature::parse(signature)?.name;
            parse(tangent)?;
            assert!(aggregate(&name).is_ok() || windows.iter().any(|own| own.name() == name), "{signature}");
        }
        Ok(())
    }
}
