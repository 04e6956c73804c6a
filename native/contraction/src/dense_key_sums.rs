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

use crate::integers::{consecutive_start, to_integers};

/// Numbers up to here are positions, and beyond it those up to so many times as many as there are rows.
const ALWAYS_DENSE: usize = 1 << 22;
const MAX_KEYS_PER_ROW: usize = 64;

/// Which columns of an input are summed by which.
#[derive(Debug, Clone)]
pub struct SumColumns {
    /// The column with the numbers.
    pub key: usize,
    /// The columns that are summed, in the order of the sums.
    pub summed: Vec<usize>,
}

/// The sums of rows so far.
#[derive(Debug)]
pub struct DenseKeySums {
    columns: SumColumns,
    /// How many rows there have been.
    rows: usize,
    /// By number, whether a row has it.
    has_rows: Vec<bool>,
    sums: Vec<ColumnSums>,
}

/// The sums of one column.
#[derive(Debug, Default)]
struct ColumnSums {
    /// By number, 0 where there is none.
    values: Vec<f64>,
    /// By number, whether a value is not NULL, if that is not so of all that are there.
    valid: Option<Vec<bool>>,
}

/// Whether numbers of a type are positions.
pub fn is_dense_key_type(data_type: &DataType) -> bool {
    data_type.is_integer()
}

impl DenseKeySums {
    /// The sums of no rows.
    pub fn new(columns: SumColumns) -> Self {
        let sums = columns.summed.iter().map(|_| ColumnSums::default()).collect();
        Self { columns, rows: 0, has_rows: vec![], sums }
    }

    /// Adds rows. False, and nothing is added, if a number is no position or there is no memory for it.
    ///
    /// # Errors
    /// If a column has another type.
    pub fn add(&mut self, batch: &RecordBatch, reservation: &MemoryReservation) -> Result<bool> {
        // A number beyond all of these is negative then.
        let numbers = &to_integers(batch.column(self.columns.key))?;
        if numbers.null_count() > 0 || numbers.is_empty() {
            return Ok(numbers.is_empty());
        }
        // Rows often come by their numbers, and loops over neighbours are several times as fast.
        let run = consecutive_start(numbers).and_then(|first| usize::try_from(first).ok());
        let run = run.map(|first| first..first + numbers.len());
        let greatest = match &run {
            Some(run) => run.end - 1,
            None => upper_bound(numbers),
        };
        if greatest >= ALWAYS_DENSE.max(MAX_KEYS_PER_ROW * (self.rows + batch.num_rows()))
            || !self.try_reserve(greatest + 1, reservation)
        {
            return Ok(false);
        }
        for (sum, column) in self.sums.iter_mut().zip(&self.columns.summed) {
            let values = batch.column(*column).as_primitive::<Float64Type>();
            match &run {
                Some(run) => sum.add_run(run.clone(), values, &self.has_rows),
                None => sum.add(numbers, values, &self.has_rows),
            }
        }
        match run {
            Some(run) => self.has_rows[run].fill(true),
            None => numbers.values().iter().for_each(|number| self.has_rows[*number as usize] = true),
        }
        self.rows += batch.num_rows();
        Ok(true)
    }

    /// Makes room for so many numbers, if there is memory.
    fn try_reserve(&mut self, numbers: usize, reservation: &MemoryReservation) -> bool {
        let before = self.has_rows.len();
        if numbers <= before {
            return true;
        }
        let after = numbers.next_power_of_two();
        let bytes = 1 + self.sums.len() * (size_of::<f64>() + 1);
        if reservation.try_grow((after - before) * bytes).is_err() {
            return false;
        }
        self.has_rows = zero_extend(&self.has_rows, after);
        for sum in &mut self.sums {
            sum.values = zero_extend(&sum.values, after);
            sum.valid = sum.valid.as_ref().map(|valid| zero_extend(valid, after));
        }
        true
    }

    /// Adds other sums. False if there is no memory for them, and nothing is added.
    pub fn merge(&mut self, other: &Self, reservation: &MemoryReservation) -> bool {
        if !self.try_reserve(other.has_rows.len(), reservation) {
            return false;
        }
        for (sum, other_sum) in self.sums.iter_mut().zip(&other.sums) {
            if let Some(valid) = &other_sum.valid {
                let has_rows = &self.has_rows;
                let own = sum.valid.get_or_insert_with(|| has_rows.clone());
                own.iter_mut().zip(valid).for_each(|(own, valid)| *own |= valid);
            } else if let Some(own) = &mut sum.valid {
                own.iter_mut().zip(&other.has_rows).for_each(|(own, has_rows)| *own |= has_rows);
            }
            sum.values.iter_mut().zip(&other_sum.values).for_each(|(sum, value)| *sum += value);
        }
        self.has_rows.iter_mut().zip(&other.has_rows).for_each(|(own, has_rows)| *own |= has_rows);
        self.rows += other.rows;
        true
    }

    /// The numbers, in parts of so many.
    pub fn key_ranges(&self, size: usize) -> impl Iterator<Item = Range<usize>> + use<> {
        let (count, size) = (self.has_rows.len(), size.max(1));
        (0..count).step_by(size).map(move |first| first..count.min(first + size))
    }

    /// The rows of the result: the number, then the sums.
    ///
    /// # Errors
    /// If the schema has other columns.
    pub fn to_result(&self, schema: &SchemaRef) -> Result<RecordBatch> {
        let numbers = self.occupied_keys(0..self.has_rows.len());
        let number = keys_to_array(&numbers, schema.field(0).data_type())?;
        let sums = self.sums.iter().map(|sum| sum.to_array(&numbers));
        let columns = std::iter::once(number).chain(sums).collect();
        Ok(RecordBatch::try_new(Arc::clone(schema), columns)?)
    }

    /// Rows that have the same sums as those that have been added, for some numbers, with the columns of the input. Those that are
    /// neither a number nor summed are NULL.
    ///
    /// # Errors
    /// If the schema has other columns.
    pub fn to_input_rows(&self, numbers: Range<usize>, schema: &SchemaRef) -> Result<RecordBatch> {
        let numbers = self.occupied_keys(numbers);
        let nulls = schema.fields().iter().map(|field| new_null_array(field.data_type(), numbers.len()));
        let mut columns = nulls.collect::<Vec<_>>();
        columns[self.columns.key] = keys_to_array(&numbers, schema.field(self.columns.key).data_type())?;
        for (position, sum) in self.columns.summed.iter().zip(&self.sums) {
            columns[*position] = sum.to_array(&numbers);
        }
        Ok(RecordBatch::try_new(Arc::clone(schema), columns)?)
    }

    /// Those of some numbers that have rows.
    fn occupied_keys(&self, numbers: Range<usize>) -> KeySet {
        let has_rows = &self.has_rows[numbers.clone()];
        let last = has_rows.iter().rposition(|has_rows| *has_rows).map_or(0, |last| last + 1);
        if has_rows[..last].iter().all(|has_rows| *has_rows) {
            return KeySet::Range(numbers.start..numbers.start + last);
        }
        KeySet::List(numbers.filter(|number| self.has_rows[*number]).collect())
    }
}

/// Numbers that have rows.
enum KeySet {
    /// All from one to another.
    Range(Range<usize>),
    List(Vec<usize>),
}

impl KeySet {
    fn len(&self) -> usize {
        match self {
            Self::Range(run) => run.len(),
            Self::List(numbers) => numbers.len(),
        }
    }
}

/// Numbers as an array.
fn keys_to_array(numbers: &KeySet, data_type: &DataType) -> Result<ArrayRef> {
    fn whole<T: ArrowPrimitiveType>(numbers: &KeySet, of: impl Fn(usize) -> T::Native) -> ArrayRef {
        Arc::new(match numbers {
            KeySet::Range(run) => PrimitiveArray::<T>::from_iter_values(run.clone().map(of)),
            KeySet::List(numbers) => PrimitiveArray::<T>::from_iter_values(numbers.iter().copied().map(of)),
        })
    }
    match data_type {
        DataType::UInt64 => Ok(whole::<UInt64Type>(numbers, |number| number as u64)),
        data_type => Ok(cast(&whole::<Int64Type>(numbers, |number| number as i64), data_type)?),
    }
}

impl ColumnSums {
    /// The sums of some numbers.
    fn to_array(&self, numbers: &KeySet) -> ArrayRef {
        let (values, valid): (Vec<_>, Option<NullBuffer>) = match numbers {
            KeySet::Range(run) => {
                let valid = self.valid.as_ref().map(|valid| NullBuffer::from(&valid[run.clone()]));
                (self.values[run.clone()].to_vec(), valid)
            }
            KeySet::List(numbers) => {
                let valid = self.valid.as_ref();
                let valid = valid.map(|valid| numbers.iter().map(|number| valid[*number]).collect());
                (numbers.iter().map(|number| self.values[*number]).collect(), valid)
            }
        };
        Arc::new(Float64Array::new(values.into(), valid))
    }

    /// Adds the values of numbers that follow each other.
    fn add_run(&mut self, run: Range<usize>, values: &Float64Array, has_rows: &[bool]) {
        let sums = self.values[run.clone()].iter_mut().zip(values.values());
        if let Some(nulls) = values.nulls().filter(|nulls| nulls.null_count() > 0) {
            let valid = self.valid.get_or_insert_with(|| Vec::from(has_rows));
            for (((sum, value), valid), is_valid) in sums.zip(&mut valid[run]).zip(nulls) {
                // What stands where there is no value may be a NaN.
                *sum += if is_valid { *value } else { 0.0 };
                *valid |= is_valid;
            }
            return;
        }
        sums.for_each(|(sum, value)| *sum += value);
        if let Some(valid) = &mut self.valid {
            valid[run].fill(true);
        }
    }

    /// Adds values. `there` says of which numbers there were values before.
    fn add(&mut self, numbers: &Int64Array, values: &Float64Array, has_rows: &[bool]) {
        let numbers = numbers.values().iter().map(|number| *number as usize);
        if values.null_count() > 0 {
            self.valid.get_or_insert_with(|| has_rows.to_vec());
        }
        match &mut self.valid {
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
            Some(valid) => numbers.zip(values).for_each(|(number, value)| {
                if let Some(value) = value {
                    self.values[number] += value;
                    valid[number] = true;
                }
            }),
        }
    }
}

/// As much as the greatest number or more, but with no more digits in base two, and more than all positions if one is negative.
fn upper_bound(numbers: &Int64Array) -> usize {
    let all = numbers.values().iter().fold(0, |all, number| all | number);
    usize::try_from(all).unwrap_or(usize::MAX)
}

/// The same with nothing behind, up to so many.
fn zero_extend<T: Clone + Default + Copy>(values: &[T], length: usize) -> Vec<T> {
    let mut extended = vec![T::default(); length];
    extended[..values.len()].copy_from_slice(values);
    extended
}
