//! Sums by whole numbers, which are positions of their own.

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, Float64Array, Int64Array, PrimitiveArray, RecordBatch, new_null_array,
};
use arrow::buffer::NullBuffer;
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type, Int64Type, SchemaRef, UInt64Type};
use datafusion_common::Result;
use datafusion_execution::memory_pool::MemoryReservation;
use std::ops::Range;
use std::sync::Arc;

use crate::integers::{numbers, run};

/// Numbers up to here are positions, and beyond it those up to so many times as many as there are rows.
const FREE: usize = 1 << 22;
const SPARSE: usize = 64;

/// Which columns of an input are summed by which.
#[derive(Debug, Clone)]
pub struct Columns {
    /// The column with the numbers.
    pub number: usize,
    /// The columns that are summed, in the order of the sums.
    pub summed: Vec<usize>,
}

/// The sums of rows so far.
#[derive(Debug)]
pub struct Sums {
    columns: Columns,
    /// How many rows there have been.
    rows: usize,
    /// By number, whether a row has it.
    there: Vec<bool>,
    sums: Vec<Sum>,
}

/// The sums of one column.
#[derive(Debug, Default)]
struct Sum {
    /// By number, 0 where there is none.
    values: Vec<f64>,
    /// By number, whether a value is not NULL, if that is not so of all that are there.
    known: Option<Vec<bool>>,
}

/// Whether numbers of a type are positions.
pub fn are_numbers(data_type: &DataType) -> bool {
    data_type.is_integer()
}

impl Sums {
    /// The sums of no rows.
    pub fn new(columns: Columns) -> Self {
        let sums = columns.summed.iter().map(|_| Sum::default()).collect();
        Self { columns, rows: 0, there: vec![], sums }
    }

    /// Adds rows. False, and nothing is added, if a number is no position or there is no memory for it.
    ///
    /// # Errors
    /// If a column has another type.
    pub fn add(&mut self, batch: &RecordBatch, reservation: &MemoryReservation) -> Result<bool> {
        // A number beyond all of these is negative then.
        let numbers = &numbers(batch.column(self.columns.number))?;
        if numbers.null_count() > 0 || numbers.is_empty() {
            return Ok(numbers.is_empty());
        }
        // Rows often come by their numbers, and loops over neighbours are several times as fast.
        let run = run(numbers).and_then(|first| usize::try_from(first).ok());
        let run = run.map(|first| first..first + numbers.len());
        let greatest = match &run {
            Some(run) => run.end - 1,
            None => bound(numbers),
        };
        if greatest >= FREE.max(SPARSE * (self.rows + batch.num_rows())) || !self.has_room(greatest + 1, reservation) {
            return Ok(false);
        }
        for (sum, column) in self.sums.iter_mut().zip(&self.columns.summed) {
            let values = batch.column(*column).as_primitive::<Float64Type>();
            match &run {
                Some(run) => sum.add_run(run.clone(), values, &self.there),
                None => sum.add(numbers, values, &self.there),
            }
        }
        match run {
            Some(run) => self.there[run].fill(true),
            None => numbers.values().iter().for_each(|number| self.there[*number as usize] = true),
        }
        self.rows += batch.num_rows();
        Ok(true)
    }

    /// Makes room for so many numbers, if there is memory.
    fn has_room(&mut self, numbers: usize, reservation: &MemoryReservation) -> bool {
        let before = self.there.len();
        if numbers <= before {
            return true;
        }
        let after = numbers.next_power_of_two();
        let bytes = 1 + self.sums.len() * (size_of::<f64>() + 1);
        if reservation.try_grow((after - before) * bytes).is_err() {
            return false;
        }
        self.there = extended(&self.there, after);
        for sum in &mut self.sums {
            sum.values = extended(&sum.values, after);
            sum.known = sum.known.as_ref().map(|known| extended(known, after));
        }
        true
    }

    /// Adds other sums. False if there is no memory for them, and nothing is added.
    pub fn add_all(&mut self, other: &Self, reservation: &MemoryReservation) -> bool {
        if !self.has_room(other.there.len(), reservation) {
            return false;
        }
        for (sum, other_sum) in self.sums.iter_mut().zip(&other.sums) {
            if let Some(known) = &other_sum.known {
                let there = &self.there;
                let own = sum.known.get_or_insert_with(|| there.clone());
                own.iter_mut().zip(known).for_each(|(own, known)| *own |= known);
            } else if let Some(own) = &mut sum.known {
                own.iter_mut().zip(&other.there).for_each(|(own, there)| *own |= there);
            }
            sum.values.iter_mut().zip(&other_sum.values).for_each(|(sum, value)| *sum += value);
        }
        self.there.iter_mut().zip(&other.there).for_each(|(own, there)| *own |= there);
        self.rows += other.rows;
        true
    }

    /// The numbers, in parts of so many.
    pub fn parts(&self, size: usize) -> impl Iterator<Item = Range<usize>> + use<> {
        let (count, size) = (self.there.len(), size.max(1));
        (0..count).step_by(size).map(move |first| first..count.min(first + size))
    }

    /// The rows of the result: the number, then the sums.
    ///
    /// # Errors
    /// If the schema has other columns.
    pub fn result(&self, schema: &SchemaRef) -> Result<RecordBatch> {
        let numbers = self.have_rows(0..self.there.len());
        let number = array(&numbers, schema.field(0).data_type())?;
        let sums = self.sums.iter().map(|sum| sum.of(&numbers));
        let columns = std::iter::once(number).chain(sums).collect();
        Ok(RecordBatch::try_new(Arc::clone(schema), columns)?)
    }

    /// Rows that have the same sums as those that have been added, for some numbers, with the columns of the input. Those that are
    /// neither a number nor summed are NULL.
    ///
    /// # Errors
    /// If the schema has other columns.
    pub fn rows(&self, numbers: Range<usize>, schema: &SchemaRef) -> Result<RecordBatch> {
        let numbers = self.have_rows(numbers);
        let nulls = schema.fields().iter().map(|field| new_null_array(field.data_type(), numbers.len()));
        let mut columns = nulls.collect::<Vec<_>>();
        columns[self.columns.number] = array(&numbers, schema.field(self.columns.number).data_type())?;
        for (position, sum) in self.columns.summed.iter().zip(&self.sums) {
            columns[*position] = sum.of(&numbers);
        }
        Ok(RecordBatch::try_new(Arc::clone(schema), columns)?)
    }

    /// Those of some numbers that have rows.
    fn have_rows(&self, numbers: Range<usize>) -> Numbers {
        let there = &self.there[numbers.clone()];
        let last = there.iter().rposition(|there| *there).map_or(0, |last| last + 1);
        if there[..last].iter().all(|there| *there) {
            return Numbers::Run(numbers.start..numbers.start + last);
        }
        Numbers::Some(numbers.filter(|number| self.there[*number]).collect())
    }
}

/// Numbers that have rows.
enum Numbers {
    /// All from one to another.
    Run(Range<usize>),
    Some(Vec<usize>),
}

impl Numbers {
    fn len(&self) -> usize {
        match self {
            Self::Run(run) => run.len(),
            Self::Some(numbers) => numbers.len(),
        }
    }
}

/// Numbers as an array.
fn array(numbers: &Numbers, data_type: &DataType) -> Result<ArrayRef> {
    fn whole<T: ArrowPrimitiveType>(numbers: &Numbers, of: impl Fn(usize) -> T::Native) -> ArrayRef {
        Arc::new(match numbers {
            Numbers::Run(run) => PrimitiveArray::<T>::from_iter_values(run.clone().map(of)),
            Numbers::Some(numbers) => PrimitiveArray::<T>::from_iter_values(numbers.iter().copied().map(of)),
        })
    }
    match data_type {
        DataType::UInt64 => Ok(whole::<UInt64Type>(numbers, |number| number as u64)),
        data_type => Ok(cast(&whole::<Int64Type>(numbers, |number| number as i64), data_type)?),
    }
}

impl Sum {
    /// The sums of some numbers.
    fn of(&self, numbers: &Numbers) -> ArrayRef {
        let (values, known): (Vec<_>, Option<NullBuffer>) = match numbers {
            Numbers::Run(run) => {
                let known = self.known.as_ref().map(|known| NullBuffer::from(&known[run.clone()]));
                (self.values[run.clone()].to_vec(), known)
            }
            Numbers::Some(numbers) => {
                let known = self.known.as_ref();
                let known = known.map(|known| numbers.iter().map(|number| known[*number]).collect());
                (numbers.iter().map(|number| self.values[*number]).collect(), known)
            }
        };
        Arc::new(Float64Array::new(values.into(), known))
    }

    /// Adds the values of numbers that follow each other.
    fn add_run(&mut self, run: Range<usize>, values: &Float64Array, there: &[bool]) {
        let sums = self.values[run.clone()].iter_mut().zip(values.values());
        if let Some(nulls) = values.nulls().filter(|nulls| nulls.null_count() > 0) {
            let known = self.known.get_or_insert_with(|| Vec::from(there));
            for (((sum, value), known), is_known) in sums.zip(&mut known[run]).zip(nulls) {
                // What stands where there is no value may be a NaN.
                *sum += if is_known { *value } else { 0.0 };
                *known |= is_known;
            }
            return;
        }
        sums.for_each(|(sum, value)| *sum += value);
        if let Some(known) = &mut self.known {
            known[run].fill(true);
        }
    }

    /// Adds values. `there` says of which numbers there were values before.
    fn add(&mut self, numbers: &Int64Array, values: &Float64Array, there: &[bool]) {
        let numbers = numbers.values().iter().map(|number| *number as usize);
        if values.null_count() > 0 {
            self.known.get_or_insert_with(|| there.to_vec());
        }
        match &mut self.known {
            None => {
                // A sum to which several rows are added one after the other waits for its memory once.
                let Some(first) = numbers.clone().next() else { return };
                let (mut last, mut sum) = (first, self.values[first]);
                for (number, value) in numbers.zip(values.values()) {
                    if number != last {
                        self.values[last] = sum;
                        (last, sum) = (number, self.values[number]);
                    }
                    sum += value;
                }
                self.values[last] = sum;
            }
            Some(known) => numbers.zip(values).for_each(|(number, value)| {
                if let Some(value) = value {
                    self.values[number] += value;
                    known[number] = true;
                }
            }),
        }
    }
}

/// As much as the greatest number or more, but with no more digits in base two, and more than all positions if one is negative.
fn bound(numbers: &Int64Array) -> usize {
    let all = numbers.values().iter().fold(0, |all, number| all | number);
    usize::try_from(all).unwrap_or(usize::MAX)
}

/// The same with nothing behind, up to so many.
fn extended<T: Clone + Default + Copy>(values: &[T], length: usize) -> Vec<T> {
    let mut extended = vec![T::default(); length];
    extended[..values.len()].copy_from_slice(values);
    extended
}
