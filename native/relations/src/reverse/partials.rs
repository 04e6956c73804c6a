//! The partial derivatives of aggregates by the inputs of one of their rows, one line each.
//!
//! In a line, the inputs are those of the row, `Ω` is the value of the aggregate, and a call is an aggregate over the same group.
//! Moving one row moves the mean of the group too, but deviations sum to zero, so that the mean's own motion cancels.

use arrow::datatypes::DataType;
use datafusion_common::{Column, Result, internal_datafusion_err, plan_err};
use datafusion_expr::expr::AggregateFunction;
use datafusion_expr::{BinaryExpr, Expr, Operator, cast, lit, when};
use datafusion_functions_aggregate::count::count_all;
use datafusion_functions::math::expr_fn::sqrt;
use sqlparser::ast::{BinaryOperator, Expr as Sql, UnaryOperator, Value};
use xql_autodiff::rules::syntax::{Signature, call_of, name_of, parse};
use xql_autodiff::vocabulary::messages::abbreviated;

use super::region::Region;
use crate::vocabulary::names::Names;
use crate::rows::aggregate;

/// The partial derivatives by each input.
const PARTIALS: &[(&str, &[&str])] = &[
    ("sum(x)", &["1"]),
    ("avg(x)", &["1 / count(x)"]),
    // Rows with equal values share the derivative evenly.
    ("min(x)", &["share(x)"]),
    ("max(x)", &["share(x)"]),
    ("first_value(x)", &["only(x)"]),
    ("var_pop(x)", &["2 * (x - avg(x)) / count(x)"]),
    ("var(x)", &["2 * (x - avg(x)) / (count(x) - 1)"]),
    // Of equal values the middle of the subdifferential, as for abs.
    ("stddev_pop(x)", &["zero_over_zero(x - avg(x), count(x) * Ω)"]),
    ("stddev(x)", &["zero_over_zero(x - avg(x), (count(x) - 1) * Ω)"]),
    ("covar_pop(y, x)", &["(x - regr_avgx(y, x)) / regr_count(y, x)", "(y - regr_avgy(y, x)) / regr_count(y, x)"]),
    (
        "covar_samp(y, x)",
        &["(x - regr_avgx(y, x)) / (regr_count(y, x) - 1)", "(y - regr_avgy(y, x)) / (regr_count(y, x) - 1)"],
    ),
    (
        "corr(y, x)",
        &[
            "(x - regr_avgx(y, x)) / sqrt(regr_sxx(y, x) * regr_syy(y, x)) - Ω * (y - regr_avgy(y, x)) / regr_syy(y, x)",
            "(y - regr_avgy(y, x)) / sqrt(regr_sxx(y, x) * regr_syy(y, x)) - Ω * (x - regr_avgx(y, x)) / regr_sxx(y, x)",
        ],
    ),
    (
        "regr_slope(y, x)",
        &[
            "(x - regr_avgx(y, x)) / regr_sxx(y, x)",
            "(y - regr_avgy(y, x) - 2 * Ω * (x - regr_avgx(y, x))) / regr_sxx(y, x)",
        ],
    ),
    (
        "regr_intercept(y, x)",
        &[
            "1 / regr_count(y, x) - regr_avgx(y, x) * (x - regr_avgx(y, x)) / regr_sxx(y, x)",
            "-regr_slope(y, x) / regr_count(y, x) - regr_avgx(y, x)
             * (y - regr_avgy(y, x) - 2 * regr_slope(y, x) * (x - regr_avgx(y, x))) / regr_sxx(y, x)",
        ],
    ),
    (
        "regr_r2(y, x)",
        &[
            "2 * regr_sxy(y, x) * (x - regr_avgx(y, x)) / (regr_sxx(y, x) * regr_syy(y, x))
             - 2 * Ω * (y - regr_avgy(y, x)) / regr_syy(y, x)",
            "2 * regr_sxy(y, x) * (y - regr_avgy(y, x)) / (regr_sxx(y, x) * regr_syy(y, x))
             - 2 * Ω * (x - regr_avgx(y, x)) / regr_sxx(y, x)",
        ],
    ),
    ("regr_avgx(y, x)", &["0", "1 / regr_count(y, x)"]),
    ("regr_avgy(y, x)", &["1 / regr_count(y, x)", "0"]),
    ("regr_sxx(y, x)", &["0", "2 * (x - regr_avgx(y, x))"]),
    ("regr_syy(y, x)", &["2 * (y - regr_avgy(y, x))", "0"]),
    ("regr_sxy(y, x)", &["x - regr_avgx(y, x)", "y - regr_avgy(y, x)"]),
];

/// A call of an aggregate whose value varies.
#[derive(Debug)]
pub struct Partials {
    /// The names that the line has for the inputs.
    inputs: Vec<String>,
    formulas: Vec<Sql>,
    /// The inputs of a row.
    arguments: Vec<Expr>,
    /// The call of an aggregate; none for a key of the groups.
    call: Option<AggregateFunction>,
    /// The aggregates over the group that the formulas call, and their positions among the columns of the reduction.
    statistics: Vec<(String, usize)>,
}

/// What the formulas are over: the value of the aggregate, the statistics, and for `min` and `max` how many rows have it.
pub struct Group<'g> {
    pub value: Expr,
    pub columns: &'g [Expr],
    pub ties: Option<Expr>,
}

impl Partials {
    /// The partial derivatives of a call over the rows of a region. `original` is the call as the user wrote it.
    pub fn of(call: &AggregateFunction, original: &Expr, below: &Region) -> Result<Self> {
        let name = call.func.name();
        if call.params.distinct && !matches!(name, "min" | "max") {
            return plan_err!("{}: no derivative is known for an aggregate of DISTINCT values", abbreviated(original));
        }
        for (signature, partials) in PARTIALS {
            let line = Signature::parse(signature)?;
            let is_own = aggregate(name).is_ok_and(|own| own == call.func);
            if line.name != name || line.inputs.len() != call.params.args.len() || !is_own {
                continue;
            }
            if name == "first_value" && !call.params.order_by.is_empty() {
                break;
            }
            let formulas = partials.iter().map(|sql| parse(sql)).collect::<Result<_>>()?;
            let (arguments, call) = (call.params.args.clone(), Some(call.clone()));
            return Ok(Self { inputs: line.inputs, formulas, arguments, call, statistics: vec![] });
        }
        let varying = below.varying.iter().next().map_or("the variable", |name| name.as_str());
        plan_err!(
            "{} varies with {}, and no derivative by row is known for the function {name}",
            abbreviated(original),
            varying.trim_start_matches('∂')
        )
    }

    /// Those of a key of the groups, which the rows of a group have in common: each has an even share in it.
    pub fn of_key(key: &Column) -> Result<Self> {
        let formulas = vec![parse("1 / rows(x)")?];
        Ok(Self {
            inputs: vec!["x".to_owned()],
            formulas,
            arguments: vec![Expr::Column(key.clone())],
            call: None,
            statistics: vec![],
        })
    }

    /// Adds the aggregates that the formulas call to those of the group.
    pub fn add_statistics(&mut self, aggregates: &mut Vec<Expr>, keys: usize, names: &mut Names) {
        let mut calls = vec![];
        for formula in &self.formulas {
            statistics(formula, &self.inputs, &mut calls);
        }
        for (name, text) in calls {
            if self.statistics.iter().any(|(known, _)| *known == text) {
                continue;
            }
            let call = match (&self.call, aggregate(&name)) {
                (Some(call), Ok(function)) => {
                    let mut call = call.clone();
                    call.func = function;
                    call.params.distinct = false;
                    call.params.order_by.clear();
                    Expr::AggregateFunction(call)
                }
                _ => count_all().unalias_nested().data,
            };
            let known = aggregates.iter().position(|known| known.clone().unalias() == call);
            let position = known.unwrap_or_else(|| {
                aggregates.push(call.alias(names.part(&name)));
                aggregates.len() - 1
            });
            self.statistics.push((text, keys + position));
        }
    }

    /// For `min` and `max`, whether a row takes part and has the value.
    pub fn chosen(&self, value: &Expr) -> Option<Expr> {
        let call = self.call.as_ref().filter(|call| matches!(call.func.name(), "min" | "max"))?;
        let chosen = call.params.args.first()?.clone().eq(value.clone());
        call.params.filter.as_deref().cloned().into_iter().chain([chosen]).reduce(Expr::and)
    }

    /// The inputs, each with the partial derivative by it.
    pub fn by_input(&self, group: &Group) -> Result<Vec<(Expr, Expr)>> {
        let mut partials = vec![];
        for (input, formula) in self.arguments.iter().zip(&self.formulas) {
            if matches!(formula, Sql::Value(value) if matches!(&value.value, Value::Number(digits, _) if digits == "0")) {
                continue;
            }
            let partial = self.expression(formula, group)?;
            let partial = match self.call.as_ref().and_then(|call| call.params.filter.as_ref()) {
                Some(filter) => when(filter.as_ref().clone(), partial).otherwise(lit(0.0))?,
                None => partial,
            };
            partials.push((input.clone(), partial));
        }
        Ok(partials)
    }

    fn expression(&self, sql: &Sql, group: &Group) -> Result<Expr> {
        let binary = |a, op, b| Expr::BinaryExpr(BinaryExpr::new(Box::new(a), op, Box::new(b)));
        match sql {
            Sql::Nested(inner) => self.expression(inner, group),
            Sql::Value(value) => match &value.value {
                Value::Number(digits, _) => {
                    let number: f64 = digits.parse().map_err(|_| internal_datafusion_err!("{digits} is no number"))?;
                    Ok(lit(number))
                }
                other => Err(internal_datafusion_err!("a partial derivative cannot be written with {other}")),
            },
            Sql::UnaryOp { op: UnaryOperator::Minus, expr } => {
                Ok(Expr::Negative(Box::new(self.expression(expr, group)?)))
            }
            Sql::BinaryOp { left, op, right } => {
                let (a, b) = (self.expression(left, group)?, self.expression(right, group)?);
                let op = match op {
                    BinaryOperator::Plus => Operator::Plus,
                    BinaryOperator::Minus => Operator::Minus,
                    BinaryOperator::Multiply => Operator::Multiply,
                    BinaryOperator::Divide => Operator::Divide,
                    other => return Err(internal_datafusion_err!("a partial derivative cannot be written with {other}")),
                };
                Ok(binary(a, op, b))
            }
            Sql::Identifier(_) => {
                let name = name_of(sql).unwrap_or_default();
                if name == "Ω" {
                    return Ok(double(group.value.clone()));
                }
                let position = self.inputs.iter().position(|input| *input == name);
                let input = position.and_then(|position| self.arguments.get(position));
                let input = input.ok_or_else(|| internal_datafusion_err!("a partial derivative names no input {name}"))?;
                Ok(double(input.clone()))
            }
            call => {
                let (name, arguments) = call_of(call)?;
                match (name.as_str(), arguments.as_slice()) {
                    ("only", [_]) => Ok(lit(1.0)),
                    ("share", [_]) => {
                        let ties = group.ties.clone().ok_or_else(|| internal_datafusion_err!("ties are not counted"))?;
                        let chosen = self.chosen(&group.value).unwrap_or_else(|| lit(true));
                        when(chosen, binary(lit(1.0), Operator::Divide, double(ties)))
                            .otherwise(lit(0.0))
                    }
                    ("sqrt", [value]) => Ok(sqrt(self.expression(value, group)?)),
                    // a / b, and 0 where b is 0.
                    ("zero_over_zero", [a, b]) => {
                        let (a, b) = (self.expression(a, group)?, self.expression(b, group)?);
                        when(b.clone().eq(lit(0.0)), lit(0.0)).otherwise(binary(a, Operator::Divide, b))
                    }
                    _ => {
                        let text = call.to_string();
                        let position = self.statistics.iter().find(|(known, _)| *known == text);
                        let column = position.and_then(|(_, position)| group.columns.get(*position)).cloned();
                        column.map(double).ok_or_else(|| internal_datafusion_err!("{text} is not computed"))
                    }
                }
            }
        }
    }
}

/// The aggregates that a formula calls, with the calls as they are written.
fn statistics(sql: &Sql, inputs: &[String], found: &mut Vec<(String, String)>) {
    match sql {
        Sql::Nested(inner) | Sql::UnaryOp { expr: inner, .. } => statistics(inner, inputs, found),
        Sql::BinaryOp { left, right, .. } => {
            statistics(left, inputs, found);
            statistics(right, inputs, found);
        }
        call => {
            let Ok((name, arguments)) = call_of(call) else { return };
            let over_inputs = arguments.iter().all(|argument| name_of(argument).is_some_and(|name| inputs.contains(&name)));
            if over_inputs && (name == "rows" || aggregate(&name).is_ok()) {
                found.push((name, call.to_string()));
            } else {
                for argument in arguments {
                    statistics(argument, inputs, found);
                }
            }
        }
    }
}

fn double(expr: Expr) -> Expr {
    cast(expr, DataType::Float64)
}
