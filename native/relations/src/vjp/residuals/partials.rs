//! The partial derivative of an aggregate by an input of one of its rows.
//!
//! The tangent of an aggregate is linear in the tangents of its rows, by calls such as `sum(dx)` and `regr_sxy(y, dx)`. Its partial
//! derivative by one row is the same formula, in which each of these calls is what that row has in it: 1, or `y - avg(y)`.

use arrow::datatypes::{DataType, Field};
use datafusion_common::{Column, DFSchema, Result, internal_err, plan_err};
use datafusion_expr::expr::{AggregateFunction, NullTreatment};
use datafusion_expr::{
    Expr, ExprSchemable, LogicalPlan, Operator, WindowFunctionDefinition, binary_expr, cast, lit, when,
};
use datafusion_functions_aggregate::count::count_all;
use std::sync::Arc;
use xql_autodiff::vocabulary::messages::abbreviate;

use crate::aggregate_rules::calls::FormulaCall;
use crate::aggregate_rules::formulas::{Input, TangentFormula, aggregate, tangent_formula};
use crate::aggregate_rules::frames::with_windows;
use crate::aggregate_rules::quantiles::{Percentile, is_quantile, keys_of_partitions, ranks, share};
use crate::aggregate_rules::without_formula::{DISTINCT_BEFORE, way_without};
use crate::vocabulary::expressions::one_zero;
use crate::vocabulary::names::{Names, with_columns};

/// The partial derivatives of a column of a group by the rows of the group.
pub struct Partials {
    by: Aggregation,
    /// The inputs of a row. Floats are DOUBLE.
    inputs: Vec<Expr>,
    /// The aggregates that the derivatives read, and their positions among the columns of the group.
    statistics: Vec<(Expr, usize)>,
}

/// The shares of rows in quantiles, and what they are computed from.
#[derive(Default)]
pub struct Shares {
    values: Vec<Expr>,
    ranks: Vec<Expr>,
    shares: Vec<Expr>,
}

impl Shares {
    /// Returns the rows with their shares.
    pub fn over(self, rows: LogicalPlan) -> Result<LogicalPlan> {
        with_columns(with_windows(with_columns(rows, self.values)?, self.ranks)?, self.shares)
    }
}

/// The way in which a group gets its column.
enum Aggregation {
    /// An aggregate over the rows.
    Aggregated {
        call: AggregateFunction,
        formula: &'static TangentFormula,
        /// The column with the share that a row has in a quantile.
        share: Option<Column>,
    },
    /// A key, which is the same in all rows.
    Key,
    /// The value of the only row.
    Only,
    /// The value of the row that an order chooses. `chosen` computes the number of that row.
    Chosen { row: Column, chosen: AggregateFunction },
}

impl Partials {
    /// Creates those of a call over rows of these columns. `original` is the call as the user wrote it.
    pub fn try_new(call: &AggregateFunction, original: &Expr, columns: &DFSchema) -> Result<Self> {
        let definition = WindowFunctionDefinition::AggregateUDF(Arc::clone(&call.func));
        let formula = tangent_formula(&definition, call.params.args.len())?;
        let Some(formula) = formula else {
            return plan_err!(
                "{} varies, and no derivative by row is known for the function {}. {}",
                abbreviate(original),
                call.func.name(),
                way_without(call.func.name())
            );
        };
        if call.params.distinct && !formula.ignores_repetition {
            return plan_err!(
                "{}: no derivative is known for an aggregate of DISTINCT values. {DISTINCT_BEFORE}",
                abbreviate(original)
            );
        }
        let inputs = call.params.args.iter().map(|argument| double(argument, columns)).collect::<Result<_>>()?;
        Ok(Self {
            by: Aggregation::Aggregated { call: call.clone(), formula, share: None },
            inputs,
            statistics: vec![],
        })
    }

    /// Returns the partial derivatives of a key, which the rows of the group share evenly.
    pub fn of_key(key: &Column) -> Self {
        Self { by: Aggregation::Key, inputs: vec![Expr::Column(key.clone())], statistics: vec![] }
    }

    /// Returns the partial derivatives of a value of the group's only row.
    pub fn of_only(value: &Expr) -> Self {
        Self { by: Aggregation::Only, inputs: vec![value.clone()], statistics: vec![] }
    }

    /// Returns the partial derivatives of `first_value` and the like, over rows with numbers.
    pub fn of_chosen(call: &AggregateFunction, value: &Expr, row: Column) -> Result<Self> {
        let mut chosen = call.clone();
        let number = Expr::Column(row.clone());
        chosen.params.args[0] = match chosen.params.null_treatment {
            Some(NullTreatment::IgnoreNulls) => when(value.clone().is_not_null(), number).end()?,
            _ => number,
        };
        Ok(Self { by: Aggregation::Chosen { row, chosen }, inputs: vec![value.clone()], statistics: vec![] })
    }

    /// Adds the share of each row in a quantile to the expressions over rows with these columns, grouped by these keys.
    /// Rows with equal values share evenly.
    pub fn add_share(
        &mut self,
        shares: &mut Shares,
        columns: &DFSchema,
        keys: &[Column],
        names: &mut Names,
    ) -> Result<()> {
        let Aggregation::Aggregated { call, share: own, .. } = &mut self.by else { return Ok(()) };
        let (true, Some(input)) = (is_quantile(call.func.name()), self.inputs.first()) else { return Ok(()) };
        let value = one_zero(input.clone(), &DataType::Float64)?;
        let value = match call.params.filter.as_deref() {
            Some(takes_part) => when(takes_part.clone(), value).end()?,
            None => value,
        };
        let percentile = self.inputs.get(1).cloned().map_or(Ok(Percentile::Half), Percentile::try_new)?;
        let is_descending = call.params.order_by.first().is_some_and(|sort| !sort.asc);
        let keys: Vec<_> = keys.iter().cloned().map(Expr::Column).collect();
        let keys = keys_of_partitions(&keys, columns)?;
        let value = Expr::Column(names.column(value, &mut shares.values, |names| names.part("value")));
        let ranks = ranks(&keys, &value, None);
        let ranks = ranks.map(|rank| Expr::Column(names.column(rank, &mut shares.ranks, |names| names.part("rank"))));
        let share = share(ranks, &percentile, is_descending);
        *own = Some(names.column(share, &mut shares.shares, |names| names.part("share")));
        Ok(())
    }

    /// Adds the aggregates that the derivatives read to those of the group, which has so many keys.
    pub fn add_statistics(&mut self, aggregates: &mut Vec<Expr>, keys: usize, names: &mut Names) -> Result<()> {
        let mut read = vec![];
        let none = Expr::Column(Column::new_unqualified("statistic"));
        self.by_input(&none, None, &mut |call| {
            read.push(call);
            Ok(none.clone())
        })?;
        for call in read {
            let known = aggregates.iter().position(|known| known.clone().unalias() == call);
            let position = known.unwrap_or_else(|| {
                aggregates.push(call.clone().alias(names.part("statistic")));
                aggregates.len() - 1
            });
            self.statistics.push((call, keys + position));
        }
        Ok(())
    }

    /// Returns whether rows may share the value, as those of `min` and `max` do.
    pub fn has_ties(&self) -> bool {
        matches!(&self.by, Aggregation::Aggregated { call, .. } if matches!(call.func.name(), "min" | "max"))
    }

    /// Returns whether they are shares of rows in the value, so that they are numbers whatever the rows hold.
    pub fn are_shares(&self) -> bool {
        match &self.by {
            Aggregation::Aggregated { call, .. } => {
                matches!(call.func.name(), "sum" | "avg" | "min" | "max") || is_quantile(call.func.name())
            }
            _ => true,
        }
    }

    /// Returns, for `min` and `max`, the condition that a row passes the filter and has the value.
    pub fn chosen(&self, value: &Expr) -> Option<Expr> {
        let Aggregation::Aggregated { call, .. } = &self.by else { return None };
        let input = call.params.args.first().filter(|_| self.has_ties())?;
        let filter = call.params.filter.as_deref().cloned();
        filter.into_iter().chain([input.clone().eq(value.clone())]).reduce(Expr::and)
    }

    /// Returns the inputs, each with the partial derivative by it, over a row with the columns of its group. `ties` says how many
    /// rows have the value of `min` or `max`.
    pub fn over_group(&self, value: &Expr, columns: &[Expr], ties: Option<Expr>) -> Result<Vec<(Expr, Expr)>> {
        self.by_input(value, ties, &mut |call| {
            let known = self.statistics.iter().find(|(known, _)| *known == call);
            match known.and_then(|(_, position)| columns.get(*position)) {
                Some(column) => Ok(column.clone()),
                None => internal_err!("{call} is not computed"),
            }
        })
    }

    fn by_input(
        &self,
        value: &Expr,
        ties: Option<Expr>,
        statistic: &mut dyn FnMut(Expr) -> Result<Expr>,
    ) -> Result<Vec<(Expr, Expr)>> {
        let (call, formula, share) = match &self.by {
            Aggregation::Aggregated { call, formula, share } => (call, formula, share),
            Aggregation::Key => {
                let rows = as_double(statistic(count_all().unalias_nested().data)?);
                return Ok(self.inputs.iter().map(|key| (key.clone(), quotient(lit(1.0), rows.clone()))).collect());
            }
            Aggregation::Chosen { row, chosen } => {
                let chosen = statistic(Expr::AggregateFunction(chosen.clone()))?;
                let share = when(Expr::Column(row.clone()).eq(chosen), lit(1.0)).end()?;
                return Ok(self.inputs.iter().map(|value| (value.clone(), share.clone())).collect());
            }
            Aggregation::Only => return Ok(self.inputs.iter().map(|value| (value.clone(), lit(1.0))).collect()),
        };
        let mut partials = vec![];
        for (varying, argument) in call.params.args.iter().enumerate() {
            let inputs = self.inputs.iter().enumerate();
            let inputs: Vec<_> = inputs
                .map(|(number, input)| Input { value: input.clone(), tangent: (number == varying).then(|| lit(1.0)) })
                .collect();
            let partial = formula.evaluate(&inputs, |asked| {
                let term = match (&asked, share) {
                    (FormulaCall::Quantile { .. }, Some(share)) => Expr::Column(share.clone()),
                    // The call for the aggregates that it reads comes before the shares are known.
                    (FormulaCall::Quantile { .. }, None) => lit(1.0),
                    _ => self.term(call, asked, value, &ties, statistic)?,
                };
                Ok((term, Arc::new(Field::new("value", DataType::Float64, true))))
            })?;
            let Some(partial) = partial else { continue };
            let takes_part = call.params.filter.as_deref().cloned().into_iter().chain(self.complete(formula));
            let partial = match takes_part.reduce(Expr::and) {
                Some(takes_part) => when(takes_part, partial).end()?,
                None => partial,
            };
            partials.push((argument.clone(), partial));
        }
        Ok(partials)
    }

    /// Returns what a row has in a call that is linear in its tangent, or the value of another call over the group.
    fn term(
        &self,
        call: &AggregateFunction,
        asked: FormulaCall,
        value: &Expr,
        ties: &Option<Expr>,
        statistic: &mut dyn FnMut(Expr) -> Result<Expr>,
    ) -> Result<Expr> {
        let mut over_group = |name: &str, arguments: Vec<Expr>, filter: Option<Expr>| -> Result<Expr> {
            let mut other = call.clone();
            other.func = aggregate(name)?;
            other.params.args = arguments;
            other.params.distinct = false;
            other.params.order_by.clear();
            let filters = other.params.filter.map(|filter| *filter).into_iter().chain(filter);
            other.params.filter = filters.reduce(Expr::and).map(Box::new);
            statistic(Expr::AggregateFunction(other)).map(as_double)
        };
        match asked {
            FormulaCall::Statistic { function, arguments } => over_group(function, arguments, None),
            FormulaCall::Pairs { input, .. } => over_group("count", vec![input], None),
            FormulaCall::Sum { .. } => Ok(lit(1.0)),
            FormulaCall::Mean { .. } => {
                let rows = over_group("count", vec![self.inputs[0].clone()], self.complete_pair())?;
                Ok(quotient(lit(1.0), rows))
            }
            FormulaCall::Deviations { input, .. } => {
                let mean = over_group("avg", vec![input.clone()], self.complete_pair())?;
                Ok(binary_expr(input, Operator::Minus, mean))
            }
            // Rows with equal values share the derivative evenly.
            FormulaCall::Chosen { .. } => {
                let share = quotient(lit(1.0), as_double(ties.clone().unwrap_or_else(|| lit(1.0))));
                when(self.chosen(value).unwrap_or_else(|| lit(true)), share).end()
            }
            FormulaCall::Quantile { .. } => {
                internal_err!("the shares of rows in {} are not computed", call.func.name())
            }
            FormulaCall::OfRow { function, .. } => {
                internal_err!("a formula has {function} of a tangent, which is not known by row")
            }
        }
    }

    /// Returns, for an aggregate over pairs, the condition that neither value of a row is NULL.
    fn complete_pair(&self) -> Option<Expr> {
        let Aggregation::Aggregated { formula, .. } = &self.by else { return None };
        self.complete(formula)
    }

    fn complete(&self, formula: &TangentFormula) -> Option<Expr> {
        let inputs = self.inputs.iter().filter(|_| formula.pairs);
        inputs.map(|input| input.clone().is_not_null()).reduce(Expr::and)
    }
}

/// Returns an input of an aggregate, which is a DOUBLE if it is a float.
fn double(input: &Expr, columns: &DFSchema) -> Result<Expr> {
    let data_type = input.get_type(columns)?;
    Ok(if data_type == DataType::Float64 { input.clone() } else { as_double(input.clone()) })
}

fn as_double(expr: Expr) -> Expr {
    cast(expr, DataType::Float64)
}

fn quotient(a: Expr, b: Expr) -> Expr {
    binary_expr(a, Operator::Divide, b)
}
