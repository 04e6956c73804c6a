//! The adjoint at the fixed point of a recursive query: cotangents propagate through its last step alone, again and
//! again.
//!
//! At a fixed point `x = f(x, p)` the derivative of a value by `p` is that by `x`, summed over all steps, through `f` by `p`
//! (B. Christianson, "Reverse accumulation and attractive fixed points", 1994):
//!
//! ```text
//! sum = c + (c · df/dx) + (c · df/dx · df/dx) + ...        for the cotangent c that the value has by x
//! d value / dp = sum · df/dp
//! ```
//!
//! The value by the first rows is 0, but for columns that every step passes on as they are: these are parameters.

use arrow::array::{Array, ArrayRef, Float64Array, RecordBatch, UInt64Array};
use arrow::compute::{cast, take};
use arrow::datatypes::{DataType, SchemaRef};
use datafusion_common::cast::as_float64_array;
use datafusion_common::{DataFusionError, Result, exec_datafusion_err, internal_err};
use datafusion_physical_plan::ExecutionPlan;
use std::sync::Arc;
use xql_autodiff::vocabulary::refusals::Refused;

use super::ends::LastStep;
use super::matching::{Compared, Unmatched, inverse, is_same, positions, whole};
use super::series::{Diverges, Series};
use super::sums::Sums;
use super::sweep::{FIRST, IterationSweep, Outside};
use super::tape::Tape;

/// The adjoint at a fixed point.
#[derive(Debug, Clone)]
pub struct FixedPoint {
    /// The largest change of a column in the last step, relative to the larger of 1 and its value. Also the part of a
    /// cotangent that may be left out.
    pub tolerance: f64,
    /// The columns of the query, under the names that it gives them.
    pub columns: SchemaRef,
    /// The positions of those that cotangents are of.
    pub varying: Vec<usize>,
    /// The plan of the contributions to the rows before alone.
    pub step: Arc<dyn ExecutionPlan>,
}

/// The last step, row by row.
struct Point {
    /// The rows before the last ones, and these.
    before: RecordBatch,
    last: RecordBatch,
    /// The columns that tell rows apart.
    keys: Vec<usize>,
    /// The columns with numbers that do not vary, which must have converged as well.
    numbers: Vec<usize>,
    /// For each of the last rows, the position of the same row before.
    positions: UInt64Array,
    /// For each row before, the position of the same row among the last ones.
    inverse: UInt64Array,
}

impl FixedPoint {
    /// Returns the sums of what is contributed to each thing, by its number.
    ///
    /// # Errors
    /// If the iterations have not come to a fixed point, or if its cotangents do not converge.
    pub async fn sums(&self, sweep: &IterationSweep, tape: &Tape, outside: Outside) -> Result<Vec<Sums>> {
        Back { fixed: self, sweep }.sums(tape, outside).await
    }
}

/// A sweep at a fixed point.
#[derive(Clone, Copy)]
struct Back<'s> {
    fixed: &'s FixedPoint,
    sweep: &'s IterationSweep,
}

impl Back<'_> {
    /// Returns the sums of what is contributed to each thing, by its number.
    async fn sums(&self, tape: &Tape, mut outside: Outside) -> Result<Vec<Sums>> {
        let Self { fixed, sweep } = *self;
        let Some(ends) = tape.ends() else { return internal_err!("the last iteration of {} is not kept", sweep.name) };
        let (mut seed, mut totals) = (Sums::new(fixed.varying.len()), vec![]);
        outside.take_from(tape.before(tape.count().saturating_sub(1)), &mut seed)?;
        if let Some(row) = outside.contributing()? {
            return Err(self.refused(format!(
                "the value reads iteration {} of {}, and its derivative is that of the last one, {}, alone. Read that one, \
                 WHERE step = (SELECT MAX(step) FROM {})",
                tape.iteration_of(row),
                tape.count() - 1,
                sweep.name,
                sweep.name
            )));
        }
        if seed.is_empty() {
            return Ok(totals);
        }
        let Some(step) = ends.last_step() else {
            return Err(self.refused("its first rows are its last ones: there is no step".to_owned()));
        };
        let point = self.point(&step)?;
        self.check_at_rest(&point, tape.count() - 1)?;
        let is_passed_on = self.passed_on(&point, &step).await?;
        let is_state = |column: usize| !is_passed_on[column];
        let sum = self.sum_series((&point, &step), tape.count(), seed.clone().only(is_state), &is_state).await?;
        let mut carried = Sums::new(fixed.varying.len());
        let rows = sum.batch(&sweep.incoming.1, None, Some(&step.last.numbers))?;
        for batch in sweep.contributions(&sweep.step, rows, step.frame).await? {
            sweep.add(&batch, &mut carried, &mut totals)?;
        }
        if is_passed_on.contains(&true) {
            let mut constant = carried.only(|column| is_passed_on[column]).moved(&point.inverse)?;
            constant.add_all(&seed.only(|column| is_passed_on[column]));
            let first = self.first_rows(&point, &step, &is_passed_on)?;
            let rows = constant.moved(&first)?.batch(&sweep.incoming.1, None, Some(&step.first.numbers))?;
            sweep.total_of(FIRST, &mut totals).add(&rows, 0, 0)?;
        }
        Ok(totals)
    }

    /// Returns the sum of a cotangent of the last rows and of what it becomes through the last step, again and again.
    async fn sum_series(
        &self,
        (point, step): (&Point, &LastStep<'_>),
        iterations: usize,
        seed: Sums,
        is_state: &impl Fn(usize) -> bool,
    ) -> Result<Sums> {
        let (mut term, mut sum) = (seed.clone(), seed);
        let mut series = Series::new(self.fixed.tolerance, iterations);
        while !series.ends(&term, &sum).map_err(|diverges| self.diverges(diverges))? {
            let rows = term.batch(&self.sweep.incoming.1, None, Some(&step.last.numbers))?;
            let mut next = Sums::new(self.fixed.varying.len());
            for batch in self.sweep.contributions(&self.fixed.step, rows, step.frame).await? {
                next.add(&batch, 1, 0)?;
            }
            term = next.only(is_state).moved(&point.inverse)?;
            sum.add_all(&term);
            self.sweep.reservation.try_resize(term.size() + sum.size())?;
        }
        self.sweep.turns.add(series.count() - 1);
        Ok(sum)
    }

    /// Returns which rows of the last step are the same.
    fn point(&self, step: &LastStep) -> Result<Point> {
        let [before, last] = [step.before, step.last].map(|rows| whole(rows, &self.fixed.columns));
        let (before, last) = (before?, last?);
        if before.num_rows() != last.num_rows() {
            return Err(self.refused(format!(
                "its last iteration has {} rows, and the one before {}. Let all rows go on until the last of them has converged",
                last.num_rows(),
                before.num_rows()
            )));
        }
        let compared = Compared::try_new(&before, &last)?;
        let is_varying = |column: &usize| self.fixed.varying.contains(column);
        let is_float = |column: &usize| last.column(*column).data_type().is_floating();
        let mut numbers = compared.other;
        numbers.retain(|column| !is_varying(column));
        if let Some(column) = numbers.iter().find(|column| !is_float(column)) {
            return Err(self.refused(format!(
                "the last step changes {}, which is no number that converges. Leave it out, or let it be the same in all rows",
                self.fixed.columns.field(*column).name()
            )));
        }
        let (further, keys): (Vec<_>, Vec<_>) = compared.equal.into_iter().partition(is_varying);
        for keys in [keys.clone(), [keys, further].concat()] {
            match positions(&last, &before, &keys)? {
                Ok(positions) => {
                    let inverse = inverse(&positions)?;
                    return Ok(Point { before, last, keys, numbers, positions, inverse });
                }
                Err(Unmatched::Twice) => {}
                Err(Unmatched::Missing) => {
                    return Err(self.refused("the last step changes which rows there are".to_owned()));
                }
            }
        }
        Err(self.refused("no column tells its rows apart. Add the key of a row as a column".to_owned()))
    }

    /// Refuses a last step that still moves columns.
    fn check_at_rest(&self, point: &Point, iteration: usize) -> Result<()> {
        let mut moved = (0.0, None);
        for column in self.fixed.varying.iter().chain(&point.numbers) {
            let before = take(point.before.column(*column), &point.positions, None)?;
            let by = largest_move(&before, point.last.column(*column))?;
            if by > moved.0 || by.is_nan() {
                moved = (by, Some(*column));
            }
        }
        let (by, column) = moved;
        match column.filter(|_| by.is_nan() || by > self.fixed.tolerance) {
            None => Ok(()),
            Some(column) => Err(self.refused(format!(
                "its last step, to iteration {iteration}, has moved {} by {by:.3e}, relative to the larger of 1 and its value. Run it \
                 longer, or with a tolerance above that",
                self.fixed.columns.field(column).name()
            ))),
        }
    }

    /// Returns which columns every step passes on as they are: those that have the same values, and whose cotangents go back to
    /// themselves and to nothing else, as the step shows with cotangents that have nothing to do with one another.
    async fn passed_on(&self, point: &Point, step: &LastStep<'_>) -> Result<Vec<bool>> {
        let mut found = vec![false; self.fixed.varying.len()];
        for (number, column) in self.fixed.varying.iter().enumerate() {
            if !is_same(&point.before, &point.last, &point.positions, *column)? {
                continue;
            }
            let probe = self.probe(number, point)?;
            let rows = probe.batch(&self.sweep.incoming.1, None, Some(&step.last.numbers))?;
            let (mut back, mut others) = (Sums::new(self.fixed.varying.len()), vec![]);
            for batch in self.sweep.contributions(&self.sweep.step, rows, step.frame).await? {
                self.sweep.add(&batch, &mut back, &mut others)?;
            }
            let reaches_others = others.iter().flat_map(Sums::largest).any(|size| size != 0.0);
            found[number] = !reaches_others && back.moved(&point.inverse)?.is_same(&probe);
        }
        Ok(found)
    }

    /// Returns a cotangent of one column, where that is not NULL.
    fn probe(&self, number: usize, point: &Point) -> Result<Sums> {
        // The fractional parts of multiples of the golden ratio, which are spread evenly.
        let value = |row: usize| 0.5 + (row as f64 * 0.618_033_988_749_894_9).fract();
        let (rows, known) = (point.last.num_rows(), point.last.column(self.fixed.varying[number]));
        let mut columns: Vec<ArrayRef> = vec![Arc::new(UInt64Array::from_iter_values(0..rows as u64))];
        for column in 1..self.sweep.incoming.1.fields().len() {
            let values = (0..rows).map(|row| (column == number + 1 && known.is_valid(row)).then(|| value(row)));
            columns.push(Arc::new(values.collect::<Float64Array>()));
        }
        let mut probe = Sums::new(self.sweep.incoming.1.fields().len() - 1);
        probe.add(&RecordBatch::try_new(Arc::clone(&self.sweep.incoming.1), columns)?, 0, 0)?;
        Ok(probe)
    }

    /// Returns, for each of the last rows, the position of the same row among the first ones.
    fn first_rows(&self, point: &Point, step: &LastStep, is_passed_on: &[bool]) -> Result<UInt64Array> {
        let first = whole(step.first, &self.fixed.columns)?;
        let passed_on = self.fixed.varying.iter().zip(is_passed_on).filter(|(_, is)| **is).map(|(column, _)| *column);
        let own = point.keys.iter().copied().filter(|column| !self.fixed.varying.contains(column));
        let keys: Vec<_> = own.chain(passed_on).collect();
        positions(&point.last, &first, &keys)?.map_err(|_| {
            self.refused(
                "its last rows cannot be told among the first ones, which have columns that it passes on".to_owned(),
            )
        })
    }

    fn diverges(&self, diverges: Diverges) -> DataFusionError {
        let (term, why) = match diverges {
            Diverges::NotFinite { term } => (term, "are NaN or infinite".to_owned()),
            Diverges::Grows { term, times } => {
                let times = if times < 1000.0 { format!("{times:.3}") } else { format!("{times:.3e}") };
                (term, format!("are {times} times as large as after {}", term / 2))
            }
        };
        self.refused(format!(
            "its cotangents do not converge: after {term} turns through the last step they {why}. That step is no contraction, so that the \
             limit has no derivative, or it hands on what it starts with, of which the limit is a function"
        ))
    }

    /// Returns the error for a recursive query whose limit has no derivative that is known.
    fn refused(&self, why: String) -> DataFusionError {
        Refused::UnsupportedRelation.mark(exec_datafusion_err!(
            "the derivative of the recursive query {} at its fixed point, which xql.fixed_point asks for: {why}. SET xql.fixed_point = 0 goes \
             back through all iterations",
            self.sweep.name
        ))
    }
}

/// Returns the largest difference of values, relative to the larger of 1 and the second value.
fn largest_move(before: &ArrayRef, last: &ArrayRef) -> Result<f64> {
    let [before, last] = [before, last].map(|values| cast(values, &DataType::Float64));
    let (before, last) = (before?, last?);
    let pairs = as_float64_array(&before)?.iter().zip(as_float64_array(&last)?);
    let moves = pairs.map(|pair| match pair {
        (None, None) => 0.0,
        (Some(before), Some(last)) if before == last || before.is_nan() && last.is_nan() => 0.0,
        (Some(before), Some(last)) => (last - before).abs() / last.abs().max(1.0),
        _ => f64::INFINITY,
    });
    Ok(moves.fold(0.0, |most, by| if by > most || by.is_nan() { by } else { most }))
}
