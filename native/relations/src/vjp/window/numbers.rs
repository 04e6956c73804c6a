//! What is added to a segment for its windows: constant functions, the numbers of rows and frames, and sums over these.

use arrow::datatypes::DataType;
use datafusion_common::{Column, Result, ScalarValue, internal_err};
use datafusion_expr::expr::{NullTreatment, Sort, WindowFunction};
use datafusion_expr::{
    Expr, ExprSchemable, Operator, WindowFrame, WindowFrameBound, WindowFrameUnits, WindowFunctionDefinition,
    binary_expr, cast, lit, when,
};
use datafusion_functions_aggregate::count::count_udaf;
use datafusion_functions_window::nth_value::{first_value_udwf, last_value_udwf};
use datafusion_functions_window::rank::rank_udwf;

use super::functions::{WindowCall, is_of_one_row};
use crate::aggregate_rules::formulas::aggregate;
use crate::aggregate_rules::frame_sums::FrameSum;
use crate::aggregate_rules::frames::{MORE_ROWS_THAN_ANY, has_own_row, is_over_partition, with_windows};
use crate::vjp::linearize::SegmentBuilder;
use crate::vjp::residuals::FramedSum;
use crate::vjp::segment::Segment;
use crate::vocabulary::names::with_columns;
use xql_autodiff::vocabulary::types::is_float;

/// A window function whose value varies, over columns of a residual by their positions.
pub struct ResidualWindow {
    /// The function.
    pub function: WindowFunction,
    /// The call as the user wrote it.
    pub original: Expr,
    /// The columns of the keys. A constant keeps all rows together, and is none.
    pub partition: Vec<usize>,
    /// The columns of the arguments, none for a constant.
    pub arguments: Vec<Option<usize>>,
    /// The column of the condition.
    pub filter: Option<usize>,
    /// The rows that the value is of.
    pub rows: FrameRows,
}

/// Which rows of the partition the value of a row is of.
pub enum FrameRows {
    /// All of them.
    All,
    /// Those with numbers within bounds, which each row has.
    Between {
        /// The column of the numbers.
        number: usize,
        /// Those of the bounds.
        bounds: [usize; 2],
        /// That of the least or greatest value, if it is one: other rows do not matter.
        extremum: Option<usize>,
    },
    /// The one with the number that each row has.
    Chosen {
        /// The column of the numbers.
        number: usize,
        /// That of the number of the row that is chosen.
        chosen: usize,
    },
}

/// Where an output of the node comes from.
pub enum Output {
    /// A column.
    Column(usize),
    /// The rows of a window.
    Varying(Box<ResidualWindow>),
}

/// A function with what has been added to the segment for it: its own value, or the number of each row.
enum First<'w> {
    Constant(Column),
    /// A sum of this project, whose cotangents are swept already.
    Summed(Column, WindowFunction),
    OverPartition(WindowCall<'w>),
    Numbered(Box<(WindowCall<'w>, RowNumbers)>),
}

/// A function with what has been added to the segment for it: what it is over.
enum Second<'w> {
    Output(Output),
    /// The rows from one number to another.
    Frame(Box<(WindowCall<'w>, FrameBounds)>),
}

/// The columns with the numbers of rows in the order of a window.
struct RowNumbers {
    /// The row's own.
    own: Column,
    /// The first and the last of the rows that are equal to it, if frames are of these.
    equal: Option<[Column; 2]>,
}

/// The rows from one number to another.
struct FrameBounds {
    number: Column,
    bounds: [Expr; 2],
}

/// A sum or mean over frames, by its windows.
struct Sum {
    sum: Column,
    /// How many rows a frame has of those that are summed, of a mean.
    rows: Option<Column>,
    /// The sum.
    call: WindowFunction,
    /// The type of the function.
    data_type: DataType,
    /// How many rows there are at most in a frame, if they are counted.
    width: Option<i64>,
}

/// A segment to which windows are added.
pub struct Numbered<'b, 'a> {
    /// What makes segments, which gives the names.
    pub builder: &'b mut SegmentBuilder<'a>,
    /// The segment.
    pub segment: &'b mut Segment,
}

impl Numbered<'_, '_> {
    /// Adds windows that do not vary, and says of each function where its value comes from. Sums are values already, with what carries
    /// cotangents back to what they sum.
    pub fn outputs(mut self, functions: Vec<WindowCall>, varies: &[bool]) -> Result<(Vec<Output>, Vec<FramedSum>)> {
        let mut windows = vec![];
        let mut first = vec![];
        for (function, varies) in functions.into_iter().zip(varies) {
            first.push(match varies {
                false => First::Constant(self.column(&mut windows, Expr::from(function.call), "number")),
                true if FrameSum::from_function(&function.call.fun).is_some() => {
                    First::Summed(self.column(&mut windows, Expr::from(function.call.clone()), "sum"), function.call)
                }
                true if is_over_partition(&function.call) => First::OverPartition(function),
                true => {
                    let row_numbers = self.row_numbers(&function.call, &mut windows);
                    First::Numbered(Box::new((function, row_numbers)))
                }
            });
        }
        self.add(windows)?;
        let mut windows = vec![];
        let mut sums = vec![];
        let mut second = vec![];
        for first in first {
            second.push(match first {
                First::Constant(column) => Second::Output(Output::Column(self.position(column))),
                First::Summed(column, call) => {
                    let Some(sum) = FramedSum::from_call(&column, &call) else {
                        return internal_err!("{column} is no sum");
                    };
                    Second::Output(self.add_sum(column, sum, &mut sums))
                }
                First::OverPartition(function) => Second::Output(self.varying(function, FrameRows::All)),
                First::Numbered(numbered) => {
                    let (function, row_numbers) = *numbered;
                    if self.builder.contracts && is_sum(&function.call) {
                        let bounds = self.bounds(&function.call, &row_numbers, &mut windows)?;
                        Second::Frame(Box::new((function, FrameBounds { number: row_numbers.own, bounds })))
                    } else {
                        let rows = self.rows(&function.call, &row_numbers, &mut windows)?;
                        Second::Output(self.varying(function, rows))
                    }
                }
            });
        }
        self.add(windows)?;
        let outputs = self.with_sums(second, &mut sums)?;
        Ok((outputs, sums))
    }

    /// Returns the outputs of functions, of which sums over frames are added to the segment.
    fn with_sums(&mut self, functions: Vec<Second>, sums: &mut Vec<FramedSum>) -> Result<Vec<Output>> {
        let mut windows = vec![];
        let mut framed = vec![];
        for function in functions {
            framed.push(match function {
                Second::Output(output) => (Some(output), None),
                Second::Frame(framed) => {
                    let (WindowCall { call, .. }, frame) = *framed;
                    (None, Some(self.sum(&call, frame, &mut windows)?))
                }
            });
        }
        self.add(windows)?;
        let mut outputs = vec![];
        for (output, sum) in framed {
            outputs.extend(output);
            if let Some(sum) = sum {
                let (column, sum) = self.value(sum)?;
                outputs.push(self.add_sum(column, sum, sums));
            }
        }
        Ok(outputs)
    }

    /// Returns the output of a sum, with what carries its cotangents back, and what that reads.
    fn add_sum(&mut self, column: Column, sum: FramedSum, sums: &mut Vec<FramedSum>) -> Output {
        for read in sum.reads() {
            self.position(read);
        }
        sums.push(sum);
        self.segment.varying.insert(column.name.clone());
        Output::Column(self.position(column))
    }

    /// Returns the sum or mean over the frame of each row, of which the windows are added to others.
    fn sum(&mut self, function: &WindowFunction, frame: FrameBounds, windows: &mut Vec<Expr>) -> Result<Sum> {
        let params = &function.params;
        let data_type = Expr::from(function.clone()).get_type(self.segment.plan.schema())?;
        let Some(argument) = params.args.first() else { return internal_err!("a sum of nothing") };
        let mut summed = argument.clone().cast_to(&DataType::Float64, self.segment.plan.schema())?;
        if let Some(takes_part) = params.filter.as_deref() {
            summed = when(takes_part.clone(), summed).end()?;
        }
        let FrameBounds { number, bounds } = frame;
        // Bounds that windows compute themselves DataFusion would compute below all windows, where there is no number yet.
        let [low, high] = bounds.map(|bound| ("bound".to_owned(), bound));
        let added = self.segment.add(vec![("summed".to_owned(), summed), low, high], self.builder.names)?;
        let Ok([input, low, high]) = <[Column; 3]>::try_from(added) else {
            return internal_err!("a frame has two bounds");
        };
        let bounds = [low, high].map(Expr::Column);
        let over = |value: Expr| {
            let number = Expr::Column(number.clone());
            FrameSum::OverFrame.call(value, params.partition_by.clone(), number, bounds.clone())
        };
        let value = Expr::Column(input.clone());
        let call = over(value.clone());
        let sum = self.column(windows, Expr::from(call.clone()), "sum");
        let rows = match function.fun.name() {
            "avg" => {
                let is_nullable = value.nullable(self.segment.plan.schema())?;
                let one = if is_nullable { when(value.is_not_null(), lit(1.0)).end()? } else { lit(1.0) };
                Some(self.column(windows, Expr::from(over(one)), "rows"))
            }
            _ => None,
        };
        Ok(Sum { sum, rows, call, data_type, width: width(&params.window_frame) })
    }

    /// Returns the value of a sum or mean whose windows the segment has.
    fn value(&mut self, Sum { sum, rows, call, data_type, width }: Sum) -> Result<(Column, FramedSum)> {
        let mut value = Expr::Column(sum.clone());
        let mut share = None;
        if let Some(rows) = rows {
            let rows = Expr::Column(rows);
            value = binary_expr(value, Operator::Divide, rows.clone());
            share = Some(binary_expr(lit(1.0), Operator::Divide, rows));
        }
        let value = value.cast_to(&data_type, self.segment.plan.schema())?;
        let mut values = vec![];
        let column = match value {
            Expr::Column(column) => column,
            value => self.column(&mut values, value, "value"),
        };
        self.segment.plan = with_columns(std::mem::take(&mut self.segment.plan), values)?;
        let Some(mut framed) = FramedSum::from_call(&column, &call) else { return internal_err!("{column} is no sum") };
        framed.share = share;
        framed.width = width;
        Ok((column, framed))
    }

    /// Returns the numbers of rows in the order of a function.
    fn row_numbers(&mut self, function: &WindowFunction, windows: &mut Vec<Expr>) -> RowNumbers {
        let own = self.column(windows, Expr::from(number_in(function, WindowFrameUnits::Rows)), "number");
        let is_of_rows = is_of_one_row(function) || function.params.window_frame.units == WindowFrameUnits::Rows;
        let equal = (!is_of_rows).then(|| {
            let mut first = number_in(function, WindowFrameUnits::Range);
            first.fun = WindowFunctionDefinition::WindowUDF(rank_udwf());
            first.params.args.clear();
            let last = number_in(function, WindowFrameUnits::Range);
            [first, last].map(|number| self.column(windows, Expr::from(number), "number"))
        });
        RowNumbers { own, equal }
    }

    /// Returns the rows that the value of a function is of, by their numbers.
    fn rows(
        &mut self,
        function: &WindowFunction,
        row_numbers: &RowNumbers,
        windows: &mut Vec<Expr>,
    ) -> Result<FrameRows> {
        let number = self.position(row_numbers.own.clone());
        if is_of_one_row(function) {
            let chosen = self.chosen(function, &row_numbers.own)?;
            let chosen = self.column(windows, chosen, "chosen");
            return Ok(FrameRows::Chosen { number, chosen: self.position(chosen) });
        }
        let bounds = self.bounds(function, row_numbers, windows)?.map(|bound| ("bound".to_owned(), bound));
        let bounds = self.segment.add(bounds.into(), self.builder.names)?;
        let Ok(bounds) = <[Column; 2]>::try_from(bounds) else { return internal_err!("a frame has two bounds") };
        let bounds = bounds.map(|bound| self.position(bound));
        let extremum = match function.params.args.first() {
            // Pairs of a value and its tangent have least and greatest ones as well. After a frame without rows, DataFusion keeps those of
            // the frame before.
            Some(value)
                if is_extremum(function)
                    && has_own_row(&function.params)?
                    && is_float(&value.get_type(self.segment.plan.schema())?) =>
            {
                let extremum = in_window_of(function.clone(), function, &row_numbers.own);
                Some(self.column(windows, Expr::from(extremum), "extremum"))
            }
            _ => None,
        };
        let extremum = extremum.map(|column| self.position(column));
        Ok(FrameRows::Between { number, bounds, extremum })
    }

    /// Returns the first and the last number in the frame of each row. That of frames of equal rows is what these have in common,
    /// whichever of them comes first.
    fn bounds(
        &mut self,
        function: &WindowFunction,
        row_numbers: &RowNumbers,
        windows: &mut Vec<Expr>,
    ) -> Result<[Expr; 2]> {
        let Some(numbers) = &row_numbers.equal else {
            return rows_around(&function.params.window_frame, &row_numbers.own);
        };
        // What windows have in common DataFusion would compute below all of them, where there is no number yet.
        let numbers = numbers.clone().map(|number| ("number".to_owned(), cast(Expr::Column(number), DataType::Int64)));
        let numbers = self.segment.add(numbers.into(), self.builder.names)?;
        let chosen = [first_value_udwf(), last_value_udwf()].into_iter().zip(numbers);
        let bounds = chosen.map(|(chosen, number)| {
            let bound = WindowFunction::new(WindowFunctionDefinition::WindowUDF(chosen), vec![Expr::Column(number)]);
            Expr::Column(self.column(windows, Expr::from(in_window_of(bound, function, &row_numbers.own)), "bound"))
        });
        match <[Expr; 2]>::try_from(bounds.collect::<Vec<_>>()) {
            Ok(bounds) => Ok(bounds),
            Err(_) => internal_err!("a frame has two bounds"),
        }
    }

    fn varying(&mut self, WindowCall { call, original }: WindowCall, rows: FrameRows) -> Output {
        let mut position = |expr: &Expr| match expr {
            Expr::Column(column) => Some(self.position(column.clone())),
            _ => None,
        };
        let partition = call.params.partition_by.iter().filter_map(&mut position).collect();
        let arguments = call.params.args.iter().map(&mut position).collect();
        let filter = call.params.filter.as_deref().and_then(&mut position);
        let original = original.clone();
        Output::Varying(Box::new(ResidualWindow { function: call, original, partition, arguments, filter, rows }))
    }

    /// Returns the number of the row that a function chooses: what the function gives of the numbers.
    ///
    /// ```text
    /// lag(x, 2, d) IGNORE NULLS OVER (ORDER BY t)
    /// ->
    /// lag(CASE WHEN x IS NOT NULL THEN number END, 2) IGNORE NULLS OVER (ORDER BY t, number)
    /// ```
    fn chosen(&mut self, function: &WindowFunction, number: &Column) -> Result<Expr> {
        let mut chosen = function.clone();
        chosen.params.args.truncate(2);
        if let Some(value) = chosen.params.args.first_mut() {
            let mut of = number.clone();
            if function.params.null_treatment == Some(NullTreatment::IgnoreNulls) {
                let known = when(value.clone().is_not_null(), Expr::Column(of.clone())).end()?;
                of = self.segment.add(vec![("number".to_owned(), known)], self.builder.names)?.pop().unwrap_or(of);
            }
            *value = Expr::Column(of);
        }
        Ok(Expr::from(in_window_of(chosen, function, number)))
    }

    /// Returns the column of a window, which is added to others that the segment will have.
    fn column(&mut self, windows: &mut Vec<Expr>, expr: Expr, name: &str) -> Column {
        self.builder.names.column(expr, windows, |names| names.part(name))
    }

    fn add(&mut self, windows: Vec<Expr>) -> Result<()> {
        if !windows.is_empty() {
            let plan = std::mem::take(&mut self.segment.plan);
            self.segment.plan = with_windows(plan, windows)?;
        }
        Ok(())
    }

    /// Returns the position of a column among those of the segment, which is added if it is not one of them yet.
    fn position(&mut self, column: Column) -> usize {
        let columns = &mut self.segment.columns;
        let known = columns.iter().position(|own| *own == column);
        known.unwrap_or_else(|| {
            columns.push(column);
            columns.len() - 1
        })
    }
}

/// Returns whether a function sums its rows, or has their mean.
fn is_sum(function: &WindowFunction) -> bool {
    let WindowFunctionDefinition::AggregateUDF(udf) = &function.fun else { return false };
    let is_known = ["sum", "avg"].iter().any(|name| aggregate(name).is_ok_and(|known| known == *udf));
    is_known && !function.params.distinct
}

/// Returns whether a function has the least or greatest of its rows.
fn is_extremum(function: &WindowFunction) -> bool {
    matches!(&function.fun, WindowFunctionDefinition::AggregateUDF(udf) if matches!(udf.name(), "min" | "max"))
}

/// Returns the numbers of the first and the last row of a frame of rows, of which there may be none.
fn rows_around(frame: &WindowFrame, number: &Column) -> Result<[Expr; 2]> {
    let bound = |bound: &WindowFrameBound| -> Result<Expr> {
        let number = Expr::Column(number.clone());
        let (rows, away, last) = match bound {
            WindowFrameBound::CurrentRow => return Ok(number),
            WindowFrameBound::Preceding(rows) => (rows, Operator::Minus, lit(1_i64)),
            WindowFrameBound::Following(rows) => (rows, Operator::Plus, lit(MORE_ROWS_THAN_ANY as i64)),
        };
        Ok(match rows.cast_to(&DataType::UInt64)? {
            ScalarValue::UInt64(Some(rows)) => binary_expr(number, away, lit(rows.min(MORE_ROWS_THAN_ANY) as i64)),
            _ => last,
        })
    };
    Ok([bound(&frame.start_bound)?, bound(&frame.end_bound)?])
}

/// Returns how many rows there are in a frame between two that are so many rows away, if it is one.
fn width(frame: &WindowFrame) -> Option<i64> {
    let away = |bound: &WindowFrameBound| {
        let (rows, sign) = match bound {
            WindowFrameBound::CurrentRow => return Some(0),
            WindowFrameBound::Preceding(rows) => (rows, -1),
            WindowFrameBound::Following(rows) => (rows, 1),
        };
        match rows.cast_to(&DataType::Int64).ok()? {
            ScalarValue::Int64(Some(rows)) => rows.checked_mul(sign),
            _ => None,
        }
    };
    let is_counted = frame.units == WindowFrameUnits::Rows;
    let width = away(&frame.end_bound)?.checked_sub(away(&frame.start_bound)?)?.checked_add(1)?;
    is_counted.then_some(width)
}

/// Returns the number of a row in the order of a window, or the last of those of equal rows, not by `row_number()`, with which
/// DataFusion 54 confuses that of the residual.
fn number_in(function: &WindowFunction, units: WindowFrameUnits) -> WindowFunction {
    let mut number = WindowFunction::new(WindowFunctionDefinition::AggregateUDF(count_udaf()), vec![lit(1)]);
    number.params.window_frame = WindowFrame::new_bounds(
        units,
        WindowFrameBound::Preceding(ScalarValue::UInt64(None)),
        WindowFrameBound::CurrentRow,
    );
    number.params.partition_by = function.params.partition_by.clone();
    number.params.order_by = function.params.order_by.clone();
    number
}

/// Returns a function of the numbers of rows over the rows that another one is over.
fn in_window_of(mut numbers: WindowFunction, function: &WindowFunction, number: &Column) -> WindowFunction {
    let params = &mut numbers.params;
    params.partition_by.clone_from(&function.params.partition_by);
    params.order_by.clone_from(&function.params.order_by);
    params.window_frame = function.params.window_frame.clone();
    if params.window_frame.units == WindowFrameUnits::Rows || matches!(function.fun.name(), "lag" | "lead") {
        // Rows that the order leaves equal have one order among them, that of their numbers.
        params.order_by.push(Sort::new(Expr::Column(number.clone()), true, false));
    }
    numbers
}
