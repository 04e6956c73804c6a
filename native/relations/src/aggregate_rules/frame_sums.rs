//! Sums over frames of rows that have numbers, without a join of the rows with themselves.
//!
//! DataFusion's own `sum` subtracts the rows that leave a frame from the sum so far. An infinite value thus leaves NaN,
//! and a large one loses digits. The sums here add only the rows of the frame. A segment tree makes that logarithmic in
//! the number of rows of the partition.

use arrow::array::{Array, ArrayRef, Float64Array, Int64Array};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion_common::cast::{as_float64_array, as_int64_array};
use datafusion_common::{Result, ScalarValue, internal_err};
use datafusion_expr::expr::{Sort, WindowFunction};
use datafusion_expr::function::{PartitionEvaluatorArgs, WindowUDFFieldArgs};
use datafusion_expr::{
    Expr, LimitEffect, PartitionEvaluator, Signature, Volatility, WindowFrame, WindowFrameBound, WindowFrameUnits,
    WindowFunctionDefinition, WindowUDF, WindowUDFImpl,
};
use datafusion_physical_expr::PhysicalExpr;
use std::ops::Range;
use std::sync::{Arc, LazyLock};

/// The sums. As matrices that are multiplied with the values of a partition, one is the transpose of the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FrameSum {
    /// `frame_sum(x, low, high)`: the values of the rows with numbers from `low` to `high` of the row itself.
    OverFrame,
    /// `sum_of_frames(x, low, high)`: the values of the rows from whose `low` to whose `high` the number of the row itself is.
    OfFrames,
}

impl FrameSum {
    /// Creates the one that a window function is.
    pub fn from_function(function: &WindowFunctionDefinition) -> Option<Self> {
        let WindowFunctionDefinition::WindowUDF(function) = function else { return None };
        function.inner().downcast_ref::<FrameSumUdwf>().map(|function| function.sum)
    }

    /// Returns the sum that propagates cotangents back.
    pub fn transpose(self) -> Self {
        match self {
            Self::OverFrame => Self::OfFrames,
            Self::OfFrames => Self::OverFrame,
        }
    }

    /// Returns the name of the function.
    pub fn name(self) -> &'static str {
        match self {
            Self::OverFrame => "frame_sum",
            Self::OfFrames => "sum_of_frames",
        }
    }

    /// Returns the window function.
    pub fn function(self) -> WindowFunctionDefinition {
        static FUNCTIONS: LazyLock<[Arc<WindowUDF>; 2]> = LazyLock::new(|| {
            [FrameSum::OverFrame, FrameSum::OfFrames].map(|sum| Arc::new(FrameSumUdwf::new(sum).into()))
        });
        let [over_frame, of_frames] = &*FUNCTIONS;
        WindowFunctionDefinition::WindowUDF(Arc::clone(match self {
            Self::OverFrame => over_frame,
            Self::OfFrames => of_frames,
        }))
    }

    /// Returns the call over partitions by these keys, whose rows have these numbers from 1 on, and these bounds. All are BIGINT.
    pub fn call(self, value: Expr, partition_by: Vec<Expr>, number: Expr, bounds: [Expr; 2]) -> WindowFunction {
        let [low, high] = bounds;
        let mut call = WindowFunction::new(self.function(), vec![value, low, high]);
        call.params.partition_by = partition_by;
        call.params.order_by = vec![Sort::new(number, true, false)];
        // The frame of each row is all of the partition, which whoever looks for the rows that a value is of has to know.
        call.params.window_frame = WindowFrame::new_bounds(
            WindowFrameUnits::Rows,
            WindowFrameBound::Preceding(ScalarValue::UInt64(None)),
            WindowFrameBound::Following(ScalarValue::UInt64(None)),
        );
        call
    }

    fn over(self, values: &Float64Array, frames: impl Iterator<Item = Range<usize>>) -> Float64Array {
        match self {
            Self::OverFrame => over_frames(values, frames),
            Self::OfFrames => of_frames(values, frames),
        }
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct FrameSumUdwf {
    sum: FrameSum,
    signature: Signature,
}

impl FrameSumUdwf {
    fn new(sum: FrameSum) -> Self {
        let arguments = vec![DataType::Float64, DataType::Int64, DataType::Int64];
        Self { sum, signature: Signature::exact(arguments, Volatility::Immutable) }
    }
}

impl WindowUDFImpl for FrameSumUdwf {
    fn name(&self) -> &str {
        self.sum.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn partition_evaluator(&self, _: PartitionEvaluatorArgs) -> Result<Box<dyn PartitionEvaluator>> {
        Ok(Box::new(Evaluator { sum: self.sum }))
    }

    fn field(&self, arguments: WindowUDFFieldArgs) -> Result<FieldRef> {
        Ok(Arc::new(Field::new(arguments.name(), DataType::Float64, true)))
    }

    fn limit_effect(&self, _: &[Arc<dyn PhysicalExpr>]) -> LimitEffect {
        LimitEffect::Unknown
    }
}

#[derive(Debug)]
struct Evaluator {
    sum: FrameSum,
}

impl PartitionEvaluator for Evaluator {
    fn evaluate_all(&mut self, values: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        let [values, low, high] = values else { return internal_err!("{} has three arguments", self.sum.name()) };
        let (low, high) = (as_int64_array(low)?, as_int64_array(high)?);
        let frames = (0..rows).map(|row| frame(low, high, row, rows));
        Ok(Arc::new(self.sum.over(as_float64_array(values)?, frames)))
    }
}

/// Returns the rows of a frame from one number to another, of those that there are. Where a bound is NULL, there are none.
fn frame(low: &Int64Array, high: &Int64Array, row: usize, rows: usize) -> Range<usize> {
    if low.is_null(row) || high.is_null(row) {
        return 0..0;
    }
    let place = |number: i64| usize::try_from(number).map_or(0, |number| number.min(rows));
    let (first, end) = (place(low.value(row).saturating_sub(1)), place(high.value(row)));
    first..end.max(first)
}

/// The nodes of a tree of sums that a range of rows is made of: that of row `i` of `n` is `n + i`, and below `k` are `2 * k` and
/// `2 * k + 1`.
fn nodes(frame: Range<usize>, rows: usize, mut visit: impl FnMut(usize)) {
    let (mut first, mut end) = (frame.start + rows, frame.end + rows);
    while first < end {
        if first % 2 == 1 {
            visit(first);
            first += 1;
        }
        if end % 2 == 1 {
            end -= 1;
            visit(end);
        }
        first /= 2;
        end /= 2;
    }
}

/// Returns the sum of the values in each frame, NULL where there is none.
fn over_frames(values: &Float64Array, frames: impl Iterator<Item = Range<usize>>) -> Float64Array {
    let rows = values.len();
    let mut sums = vec![0.0; rows];
    let mut known = vec![0_usize; 1];
    for value in values {
        sums.push(value.unwrap_or(0.0));
        known.push(known[known.len() - 1] + usize::from(value.is_some()));
    }
    for node in (1..rows).rev() {
        sums[node] = sums[2 * node] + sums[2 * node + 1];
    }
    let of_frame = |frame: Range<usize>| {
        if known[frame.start] == known[frame.end] {
            return None;
        }
        let mut sum = 0.0;
        nodes(frame, rows, |node| sum += sums[node]);
        Some(sum)
    };
    frames.map(of_frame).collect()
}

/// For each row the sum of the values whose frames it is in, NULL where there is none.
fn of_frames(values: &Float64Array, frames: impl Iterator<Item = Range<usize>>) -> Float64Array {
    let rows = values.len();
    let mut sums = vec![0.0; 2 * rows];
    // The number of frames that begin at a row, minus those that end before it.
    let mut begun = vec![0_i64; rows + 1];
    for (value, frame) in values.iter().zip(frames) {
        let Some(value) = value.filter(|_| !frame.is_empty()) else { continue };
        begun[frame.start] += 1;
        begun[frame.end] -= 1;
        nodes(frame, rows, |node| sums[node] += value);
    }
    for node in 1..rows {
        let of_all = sums[node];
        sums[2 * node] += of_all;
        sums[2 * node + 1] += of_all;
    }
    let mut open = 0;
    let of_row = |(begun, sum): (&i64, &f64)| {
        open += begun;
        (open > 0).then_some(*sum)
    };
    begun.iter().zip(&sums[rows..]).map(of_row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sums(sum: FrameSum, values: &[Option<f64>], frames: &[(Option<i64>, Option<i64>)]) -> Result<Vec<Option<f64>>> {
        let (low, high): (Vec<_>, Vec<_>) = frames.iter().copied().unzip();
        let columns: [ArrayRef; 3] = [
            Arc::new(Float64Array::from(values.to_vec())),
            Arc::new(Int64Array::from(low)),
            Arc::new(Int64Array::from(high)),
        ];
        let summed = Evaluator { sum }.evaluate_all(&columns, values.len())?;
        Ok(as_float64_array(&summed)?.iter().collect())
    }

    /// Frames of all kinds over up to 9 rows, against sums by definition.
    #[test]
    fn sums_are_those_of_the_rows_of_frames() -> Result<()> {
        for rows in 0..10_i64 {
            let values: Vec<_> = (0..rows).map(|row| (row % 4 != 2).then(|| f64::powi(2.0, row as i32))).collect();
            for shift in -3..4_i64 {
                let frames: Vec<_> = (0..rows).map(|row| (row * 7 % 5 + shift, row * 11 % 9 + shift)).collect();
                let is_in = |row: usize, frame: usize| (frames[frame].0..=frames[frame].1).contains(&(row as i64 + 1));
                let rows = 0..values.len();
                let summed = |is_summed: &dyn Fn(usize, usize) -> bool| -> Vec<_> {
                    let of_row = |row| rows.clone().filter(move |other| is_summed(row, *other));
                    let of_row = |row| of_row(row).filter_map(|other| values[other]).reduce(|sum, value| sum + value);
                    rows.clone().map(of_row).collect()
                };
                let over = summed(&|row, other| is_in(other, row));
                let of = summed(&|row, other| is_in(row, other));
                let known: Vec<_> = frames.iter().map(|(low, high)| (Some(*low), Some(*high))).collect();
                assert_eq!(sums(FrameSum::OverFrame, &values, &known)?, over, "{frames:?}");
                assert_eq!(sums(FrameSum::OfFrames, &values, &known)?, of, "{frames:?}");
            }
        }
        Ok(())
    }

    /// Sums over frames: what is not in a frame does not count, whatever it is, and a frame without bounds has no rows.
    #[test]
    fn nothing_is_taken_away_again() -> Result<()> {
        let values = [Some(f64::INFINITY), Some(1e300), Some(1.0), Some(f64::NAN), Some(2.0)];
        let own: Vec<_> = (1..=5).map(|row| (Some(row), Some(row))).collect();
        for sum in [FrameSum::OverFrame, FrameSum::OfFrames] {
            let found = sums(sum, &values, &own)?;
            assert_eq!([found[0], found[1], found[2], found[4]], [values[0], values[1], values[2], values[4]]);
            assert_eq!(sums(sum, &[Some(1.0)], &[(None, Some(1))])?, [None]);
        }
        Ok(())
    }
}
