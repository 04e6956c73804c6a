//! The derivative of a window function by the row's own value of the variable.
//!
//! It is the tangent of the function if only the rows with that value move. A tangent is a sum over the rows of the
//! window. So the derivative is the same sum over the rows with that value alone. If no other row has it, the sum has
//! one term:
//!
//! ```text
//! avg(x) OVER (PARTITION BY k)    avg(dx) OVER (PARTITION BY k)    sum(dx) OVER (PARTITION BY k, cell) / count(x) OVER (PARTITION BY k)
//!                                                                  dx / count(x) OVER (PARTITION BY k)
//! ```

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion_common::{Column, Result, ScalarValue, internal_err};
use datafusion_expr::expr::{NullTreatment, Sort, WindowFunction, WindowFunctionParams};
use datafusion_expr::{
    Expr, ExprSchemable, Operator, WindowFrame, WindowFrameBound, WindowFrameUnits, WindowFunctionDefinition,
    binary_expr, cast, lit, when,
};
use datafusion_functions::core::expr_fn::coalesce;
use datafusion_functions_aggregate::count::count_udaf;
use datafusion_functions_window::rank::dense_rank_udwf;
use std::sync::Arc;

use super::calls::{FormulaCall, is_choice};
use super::formulas::{Input, TangentFormula, aggregate};
use super::frame_sums::FrameSum;
use super::frames::{by_distance, has_own_row, is_in_own_frame, is_whole};
use super::quantiles::{Percentile, is_quantile, ranks, share};
use super::{AggregateOrWindow, AggregateRows, Guarded, VaryingFunction};
use crate::tangents::tangent::Inactive;
use crate::vocabulary::expressions::{failing, one_zero};

/// Returns whether the derivative of a window function by the row's own value is known. With `repeats`, several rows of
/// a window may have the same value.
///
/// With `repeats`, it is unknown for the minimum and maximum of a moving frame, because the ties differ from row to
/// row. It is also unknown for frames that exclude the row: they may have no row with the value, and after such a frame
/// DataFusion 54 sums rows that have left it. Without `repeats`, it is unknown only for the minimum and maximum over a
/// `RANGE` that may exclude the row.
pub fn is_known_by_own_cell(function: &WindowFunction, repeats: bool) -> Result<bool> {
    let params = &function.params;
    if FrameSum::from_function(&function.fun).is_some() {
        return Ok(false);
    }
    if is_choice(function.fun.name()) || is_whole(params) {
        return Ok(true);
    }
    let has_own_row = has_own_row(params)?;
    Ok(match (is_extremum(&function.fun), repeats) {
        (true, true) => false,
        (true, false) => has_own_row || params.window_frame.units != WindowFrameUnits::Range,
        (false, true) => has_own_row,
        (false, false) => true,
    })
}

/// Returns the function over whole partitions.
fn over_partition(function: &WindowFunction) -> WindowFunction {
    let mut whole = function.clone();
    whole.params.order_by.clear();
    whole.params.window_frame = WindowFrame::new(None);
    whole
}

fn is_extremum(function: &WindowFunctionDefinition) -> bool {
    matches!(function.name(), "min" | "max")
}

/// The rows of a window function, with the tangents that they have while the windows below stay as they are.
pub struct OwnRow<'a> {
    /// The rows.
    pub over: AggregateRows<'a>,
    /// The number of the cell that a row has, where it is asked for.
    pub cell: Option<Column>,
    /// Whether several rows may have one cell.
    pub repeats: bool,
    /// The expressions that are computed for each row, from the functions of `over`.
    pub terms: &'a mut Vec<Expr>,
    /// The window functions over that.
    pub sums: &'a mut Vec<Expr>,
}

impl OwnRow<'_> {
    /// Returns the derivative of a function, which has this value; nothing if it is zero.
    pub fn tangent(&mut self, function: &Expr, value: &Expr) -> Result<Option<Guarded>> {
        let Some(VaryingFunction { call: AggregateOrWindow::Window(call), inputs, formula }) =
            self.over.varying(function)?
        else {
            return Ok(None);
        };
        if is_choice(call.fun.name()) {
            return self.chosen_row(function, *call, &inputs, formula).map(Some);
        }
        let mut takes_part: Vec<_> = call.params.filter.as_deref().cloned().into_iter().collect();
        takes_part.extend(self.over.present(&inputs)?);
        if !self.repeats {
            takes_part.extend(is_in_own_frame(&call.params, self.over.with_tangents)?);
        }
        let complete = if formula.pairs { self.over.present(&inputs)? } else { None };
        let takes_part = takes_part.into_iter().reduce(Expr::and);
        let mut sum = Sum { rows: self, call: *call, complete, takes_part, value };
        let Some(tangent) = sum.tangent(&inputs, formula)? else { return Ok(None) };
        let inactive = sum.inactive()?;
        Guarded::new(function, tangent, inactive).map(Some)
    }

    /// Returns the tangent of a function, which has this value, along one that is the same in all rows of a partition; nothing if it
    /// is zero.
    pub fn tangent_along(&mut self, function: &Expr, value: &Expr) -> Result<Option<Guarded>> {
        let Some(VaryingFunction { call: AggregateOrWindow::Window(call), inputs, formula }) =
            self.over.varying(function)?
        else {
            return Ok(None);
        };
        match inputs.as_slice() {
            [Input { value: input, tangent: Some(tangent) }] if is_extremum(&call.fun) && is_whole(&call.params) => {
                let (input, tangent) = (input.clone(), tangent.clone());
                let takes_part: Vec<_> = call.params.filter.as_deref().cloned().into_iter().collect();
                let takes_part = takes_part.into_iter().chain(self.over.present(&inputs)?).reduce(Expr::and);
                let mean = Sum { rows: self, call: *call, complete: None, takes_part, value }.mean(input, tangent)?;
                Ok(Some(Guarded { tangent: mean, inactive: self.over.inactive(function)? }))
            }
            [_, ..] if is_quantile(call.fun.name()) => {
                let takes_part = call.params.filter.as_deref().cloned().into_iter().chain(self.over.present(&inputs)?);
                let mut sum =
                    Sum { rows: self, takes_part: takes_part.reduce(Expr::and), call: *call, complete: None, value };
                let known: FieldRef = Arc::new(Field::new("value", DataType::Float64, true));
                let tangent = formula.evaluate(&inputs, |call| {
                    let FormulaCall::Quantile { percentile, input, tangent } = call else {
                        return internal_err!("the derivative of a quantile is not by the shares of its rows");
                    };
                    let term = sum.share_in_quantile(&percentile, input, tangent)?;
                    let term = sum.term(term, "term");
                    let frame = sum.frame()?;
                    Ok((sum.over_part("sum", term, vec![], frame)?, Arc::clone(&known)))
                })?;
                let inactive = self.over.inactive(function)?;
                Ok(tangent.map(|tangent| Guarded { tangent, inactive }))
            }
            _ => self.over.guarded(function),
        }
    }

    /// Returns the tangent of a function where all rows in its frame have the row's own cell: they all move. More cells in a
    /// frame are an error when the query runs. `has_value` is the condition on which the function is not NULL.
    pub fn tangent_of_one_cell(&mut self, function: &Expr, has_value: Option<Expr>) -> Result<Option<Guarded>> {
        let Some(Guarded { tangent, inactive }) = self.over.guarded(function)? else { return Ok(None) };
        let cell = self.cell()?;
        let variable = self.over.variable;
        let AggregateOrWindow::Window(call) = AggregateOrWindow::from_expr(function)? else { return Ok(None) };
        let call = if has_own_row(&call.params)? { *call } else { over_partition(&call) };
        let mut rows = self.over.rows(AggregateOrWindow::Window(Box::new(call)), None);
        let (first, _) = rows.call("min", vec![cell.clone()])?;
        let (last, _) = rows.call("max", vec![cell.clone()])?;
        let says = format!(
            " of {variable} in one window: the derivative by the row's own is not known there. PARTITION BY a column that tells them \
             apart, or write jvp(..., {variable}, 1), which moves all of them"
        );
        let begins = lit("UnsupportedRelationError: rows ");
        let error = failing([begins, first.clone(), lit(" to "), last.clone(), lit(says)], DataType::Float64);
        let several = first.clone().not_eq(last).or(first.not_eq(cell));
        let several = has_value.iter().cloned().chain([several]).reduce(Expr::and).unwrap_or_else(|| lit(false));
        let checked = when(several, error).otherwise(lit(1.0))?;
        let checked = Expr::Column(self.over.names.column(checked, self.terms, |names| names.part("checked")));
        // A derivative of the derivative has the same condition, and so the same error.
        let condition = has_value.into_iter().chain([checked.eq(lit(1.0))]).reduce(Expr::and);
        let tangent = when(condition.unwrap_or_else(|| lit(true)), tangent).end()?;
        Ok(Some(Guarded { tangent, inactive }))
    }

    /// Applies the function to the tangents: it has the tangent of the row that is chosen, which counts if that row has
    /// the same cell.
    fn chosen_row(
        &mut self,
        function: &Expr,
        call: WindowFunction,
        inputs: &[Input],
        formula: &TangentFormula,
    ) -> Result<Guarded> {
        let cell = self.cell()?;
        let own = match (call.params.null_treatment, inputs.first()) {
            (Some(NullTreatment::IgnoreNulls), Some(Input { value, .. })) => {
                when(value.clone().is_not_null(), cell.clone()).end()?
            }
            _ => cell.clone(),
        };
        let name = call.fun.name().to_owned();
        let which = call.params.args.get(1).cloned();
        let mut rows = self.over.rows(AggregateOrWindow::Window(Box::new(call)), None);
        let tangent = formula.evaluate(inputs, |call| rows.value(call))?;
        let (chosen, _) = rows.call(&name, [own].into_iter().chain(which).collect())?;
        // There is no such row where lag and lead have their default, which is of the row itself.
        let tangent = tangent.unwrap_or_else(|| lit(0.0));
        let is_other = chosen.not_eq(cell);
        let inactive = self.over.inactive(function)?.map(|inactive| is_other.clone().or(inactive));
        Ok(Guarded { tangent: when(is_other, lit(0.0)).otherwise(or_zero(tangent))?, inactive })
    }

    /// Returns the number of a row's cell. A row that an outer join has extended has none, and no tangent either.
    fn cell(&self) -> Result<Expr> {
        let Some(cell) = &self.cell else { return internal_err!("the cells of a window are not numbered") };
        let cell = Expr::Column(cell.clone());
        Ok(if cell.nullable(self.over.with_tangents)? { coalesce(vec![cell, lit(0_u64)]) } else { cell })
    }
}

/// The sums that the tangent of an aggregate is made of, over the rows with the row's own cell.
struct Sum<'s, 'a> {
    rows: &'s mut OwnRow<'a>,
    call: WindowFunction,
    /// For an aggregate over pairs, which rows are whole ones.
    complete: Option<Expr>,
    /// Which rows take part at all.
    takes_part: Option<Expr>,
    value: &'s Expr,
}

impl Sum<'_, '_> {
    fn tangent(&mut self, inputs: &[Input], formula: &TangentFormula) -> Result<Option<Expr>> {
        let known = |expr: Expr| -> (Expr, FieldRef) { (expr, Arc::new(Field::new("value", DataType::Float64, true))) };
        formula.evaluate(inputs, |call| match call {
            FormulaCall::Statistic { function, arguments } => self.over_frame(function, arguments),
            FormulaCall::Pairs { input, .. } => self.over_frame("count", vec![input]),
            FormulaCall::Sum { tangent } => Ok(known(self.sum(tangent)?)),
            FormulaCall::Mean { tangent } => {
                let (rows, _) = self.over_frame("count", vec![inputs[0].value.clone()])?;
                Ok(known(quotient(self.sum(tangent)?, rows)))
            }
            FormulaCall::Deviations { input, tangent, .. } => Ok(known(self.deviations(input, tangent)?)),
            FormulaCall::Chosen { input, tangent, .. } => Ok(known(self.share(input, tangent)?)),
            FormulaCall::Quantile { percentile, input, tangent } => {
                let term = self.share_in_quantile(&percentile, input, tangent)?;
                Ok(known(self.sum(or_zero(term))?))
            }
            FormulaCall::OfRow { function, .. } => {
                internal_err!("{function} chooses a row, which is not known by the row's own cell in a sum")
            }
        })
    }

    /// Returns where none of the rows with the same cell varies by the branches that they take; none if that is known of no row.
    fn inactive(&mut self) -> Result<Option<Expr>> {
        let call = AggregateOrWindow::Window(Box::new(self.call.clone()));
        let Some(condition) = self.rows.over.inactive_rows(&call)? else { return Ok(None) };
        if !self.rows.repeats {
            return Ok(Some(condition));
        }
        let number = self.term(Inactive::number(condition)?, "inactive");
        let cell = self.rows.cell()?;
        let frame = self.frame()?;
        let all = self.over_part("min", number, vec![cell], frame)?;
        Ok(Some(all.eq(lit(1_i64))))
    }

    /// Returns a function over all rows of the frame.
    fn over_frame(&mut self, function: &str, arguments: Vec<Expr>) -> Result<(Expr, FieldRef)> {
        let call = AggregateOrWindow::Window(Box::new(self.call.clone()));
        self.rows.over.rows(call, self.complete.clone()).call(function, arguments)
    }

    /// Returns the sum over the rows with the same cell.
    fn sum(&mut self, term: Expr) -> Result<Expr> {
        let term = self.of_those_that_take_part(term, Some(lit(0.0)))?;
        if !self.rows.repeats {
            return Ok(term);
        }
        let term = self.term(term, "term");
        let cell = self.rows.cell()?;
        let frame = self.frame()?;
        self.over_part("sum", term, vec![cell], frame).map(or_zero)
    }

    /// Returns the sum of the tangents, each times the deviation of the input from its mean.
    fn deviations(&mut self, input: Expr, tangent: Expr) -> Result<Expr> {
        let (mean, _) = self.over_frame("avg", vec![input.clone()])?;
        if !self.rows.repeats || is_whole(&self.call.params) {
            return self.sum(product(difference(input, mean), tangent));
        }
        // The mean differs from row to row. The mean of the partition is close enough to avoid cancellation.
        let partition = AggregateOrWindow::Window(Box::new(over_partition(&self.call)));
        let mut rows = self.rows.over.rows(partition, self.complete.clone());
        let (center, _) = rows.call("avg", vec![input.clone()])?;
        let around_center = self.sum(product(difference(input, center.clone()), tangent.clone()))?;
        Ok(difference(around_center, product(difference(mean, center), self.sum(tangent)?)))
    }

    /// Returns what the row's own cell has in the least or greatest value, in which rows with that value share evenly. Of several
    /// rows with one cell it is the least or greatest tangent, so that it is the derivative for a growing variable.
    fn share(&mut self, input: Expr, tangent: Expr) -> Result<Expr> {
        let is_chosen = self.is_chosen(&input)?;
        if self.rows.repeats {
            let chosen = self.of_those_that_take_part(when(is_chosen, tangent).end()?, None)?;
            let chosen = self.term(chosen, "chosen");
            let cell = self.rows.cell()?;
            let frame = self.frame()?;
            let extremum = self.call.fun.name().to_owned();
            let of_cell = self.over_part(&extremum, chosen.clone(), vec![cell.clone()], frame.clone())?;
            let ties_of_cell = self.over_part("count", chosen.clone(), vec![cell], frame.clone())?;
            let ties = self.over_part("count", chosen, vec![], frame)?;
            return Ok(or_zero(quotient(product(of_cell, cast(ties_of_cell, DataType::Float64)), ties)));
        }
        let takes_part = self.of_those_that_take_part(lit(1_i64), None)?;
        let takes_part = self.term(takes_part, "row");
        let own = self.term(one_zero(input, &DataType::Float64)?, "value");
        let frame = self.frame()?;
        let ties = self.over_part("count", takes_part, vec![own], frame)?;
        self.of_those_that_take_part(when(is_chosen, quotient(tangent, ties)).otherwise(lit(0.0))?, Some(lit(0.0)))
    }

    /// Returns the share that a row has in a quantile, times its tangent. Rows with equal values share evenly.
    fn share_in_quantile(&mut self, percentile: &Percentile, input: Expr, tangent: Expr) -> Result<Expr> {
        let value = self.of_those_that_take_part(one_zero(input, &DataType::Float64)?, None)?;
        let over = &mut self.rows.over;
        let ranks = ranks(&self.call.params.partition_by, &value, None);
        let ranks = ranks.map(|rank| Expr::Column(over.names.column(rank, over.ranks, |names| names.part("rank"))));
        Ok(product(share(ranks, percentile, false), tangent))
    }

    /// Returns the mean of the tangents of the rows with the least or greatest value.
    fn mean(&mut self, input: Expr, tangent: Expr) -> Result<Expr> {
        let is_chosen = self.is_chosen(&input)?;
        let chosen = self.of_those_that_take_part(when(is_chosen, tangent).end()?, None)?;
        let chosen = self.term(chosen, "chosen");
        let frame = self.frame()?;
        let sum = self.over_part("sum", chosen.clone(), vec![], frame.clone())?;
        Ok(quotient(sum, self.over_part("count", chosen, vec![], frame)?))
    }

    /// Returns whether a row has the least or greatest value.
    fn is_chosen(&self, input: &Expr) -> Result<Expr> {
        let value = cast(self.value.clone(), DataType::Float64);
        Ok(one_zero(input.clone(), &DataType::Float64)?.eq(one_zero(value, &DataType::Float64)?))
    }

    fn of_those_that_take_part(&self, term: Expr, of_others: Option<Expr>) -> Result<Expr> {
        match (&self.takes_part, of_others) {
            (None, _) => Ok(term),
            (Some(takes_part), None) => when(takes_part.clone(), term).end(),
            (Some(takes_part), Some(of_others)) => when(takes_part.clone(), term).otherwise(of_others),
        }
    }

    /// Returns a value of each row as a column.
    fn term(&mut self, term: Expr, name: &str) -> Expr {
        Expr::Column(self.rows.over.names.column(term, self.rows.terms, |names| names.part(name)))
    }

    /// Returns an aggregate over the rows of the frame that agree in more than the partition.
    fn over_part(
        &mut self,
        function: &str,
        term: Expr,
        also_by: Vec<Expr>,
        (order_by, window_frame): (Vec<Sort>, WindowFrame),
    ) -> Result<Expr> {
        let definition = WindowFunctionDefinition::AggregateUDF(aggregate(function)?);
        let partition_by = self.call.params.partition_by.iter().cloned().chain(also_by).collect();
        let params = WindowFunctionParams {
            partition_by,
            order_by,
            window_frame,
            ..WindowFunction::new(definition.clone(), vec![term]).params
        };
        let call = Expr::WindowFunction(Box::new(WindowFunction { fun: definition, params }));
        Ok(Expr::Column(self.rows.over.names.column(call, self.rows.sums, |names| names.part(function))))
    }

    /// Returns an order and a frame that have of each part of a partition what the function's frame has of it.
    fn frame(&mut self) -> Result<(Vec<Sort>, WindowFrame)> {
        let WindowFunctionParams { order_by, window_frame, .. } = &self.call.params;
        if is_whole(&self.call.params) {
            return Ok((vec![], WindowFrame::new(None)));
        }
        let numbering = match window_frame.units {
            WindowFrameUnits::Range => return Ok((order_by.clone(), window_frame.clone())),
            // The number of a row, not by row_number(), with which DataFusion 54 confuses that of the cells.
            WindowFrameUnits::Rows => {
                WindowFunction::new(WindowFunctionDefinition::AggregateUDF(count_udaf()), vec![lit(1_i64)])
            }
            WindowFrameUnits::Groups => {
                WindowFunction::new(WindowFunctionDefinition::WindowUDF(dense_rank_udwf()), vec![])
            }
        };
        let frame = by_distance(window_frame)?;
        let params = WindowFunctionParams {
            partition_by: self.call.params.partition_by.clone(),
            order_by: order_by.clone(),
            window_frame: WindowFrame::new_bounds(
                WindowFrameUnits::Rows,
                WindowFrameBound::Preceding(ScalarValue::UInt64(None)),
                WindowFrameBound::CurrentRow,
            ),
            ..numbering.params
        };
        let number = Expr::WindowFunction(Box::new(WindowFunction { fun: numbering.fun, params }));
        let over = &mut self.rows.over;
        let number = Expr::Column(over.names.column(number, over.computed, |names| names.part("number")));
        let number = self.term(cast(number, DataType::Int64), "position");
        Ok((vec![number.sort(true, false)], frame))
    }
}

/// Returns the value, and zero where it is NULL.
pub fn or_zero(expr: Expr) -> Expr {
    coalesce(vec![expr, lit(0.0)])
}

fn product(a: Expr, b: Expr) -> Expr {
    binary_expr(a, Operator::Multiply, b)
}

fn difference(a: Expr, b: Expr) -> Expr {
    binary_expr(a, Operator::Minus, b)
}

/// Returns a quotient by a number of rows.
fn quotient(a: Expr, rows: Expr) -> Expr {
    binary_expr(a, Operator::Divide, cast(rows, DataType::Float64))
}
