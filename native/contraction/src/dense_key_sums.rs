//! Sums grouped by an integer key that is an array index.

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

/// Keys below this are always indexes, and larger ones up to so many times the number of rows.
const ALWAYS_DENSE: usize = 1 << 22;
const MAX_KEYS_PER_ROW: usize = 64;

/// The columns of an input.
#[derive(Debug, Clone)]
pub struct SumColumns {
    /// The integer key.
    pub key: usize,
    /// The summed columns, in the order of the sums.
    pub summed: Vec<usize>,
}

/// The sums of the rows so far.
#[derive(Debug)]
pub struct DenseKeySums {
    columns: SumColumns,
    /// The number of rows.
    rows: usize,
    /// By key, whether it has rows.
    has_rows: Vec<bool>,
    sums: Vec<ColumnSums>,
}

/// The sums of one column.
#[derive(Debug, Default)]
struct ColumnSums {
    /// By key, 0 where there is none.
    values: Vec<f64>,
    /// By key, whether it has a value that is not NULL; `None` if all keys with rows have.
    valid: Option<Vec<bool>>,
}

/// Returns whether keys of a type can be indexes.
pub fn is_dense_key_type(data_type: &DataType) -> bool {
    data_type.is_integer()
}

impl DenseKeySums {
    /// Creates the sums of no rows.
    pub fn new(columns: SumColumns) -> Self {
        let sums = columns.summed.iter().map(|_| ColumnSums::default()).collect();
        Self { columns, rows: 0, has_rows: vec![], sums }
    }

    /// Adds rows. Returns false, and adds nothing, if a key is no index or memory has run out.
    ///
    /// # Errors
    /// If a column has another type.
    pub fn add(&mut self, batch: &RecordBatch, reservation: &MemoryReservation) -> Result<bool> {
        // Unsigned keys above all indexes are negative as integers.
        let numbers = &to_integers(batch.column(self.columns.key))?;
        if numbers.null_count() > 0 || numbers.is_empty() {
            return Ok(numbers.is_empty());
        }
        // Rows often arrive in the order of consecutive keys, for which loops are several times as fast.
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

    /// Grows the arrays for a number of keys. Returns false if memory has run out.
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

    /// Adds the sums of other rows. Returns false, and adds nothing, if memory has run out.
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

    /// Divides the keys into ranges.
    pub fn key_ranges(&self, size: usize) -> impl Iterator<Item = Range<usize>> + use<> {
        let (count, size) = (self.has_rows.len(), size.max(1));
        (0..count).step_by(size).map(move |first| first..count.min(first + size))
    }

    /// Returns the rows of the result: key, then sums.
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

    /// Returns rows of the schema of the input with the same sums as the rows added so far, for a range of keys. Columns that are neither
    /// key nor summed are NULL.
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

    /// Returns the keys of a range that have rows.
    fn occupied_keys(&self, numbers: Range<usize>) -> KeySet {
        let has_rows = &self.has_rows[numbers.clone()];
        let last = has_rows.iter().rposition(|has_rows| *has_rows).map_or(0, |last| last + 1);
        if has_rows[..last].iter().all(|has_rows| *has_rows) {
            return KeySet::Range(numbers.start..numbers.start + last);
        }
        KeySet::List(numbers.filter(|number| self.has_rows[*number]).collect())
    }
}

/// Keys that have rows.
enum KeySet {
    /// Consecutive keys.
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

/// Returns keys as an array.
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
    /// Returns the sums of keys as an array.
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

    /// Adds the values of consecutive keys.
    fn add_run(&mut self, run: Range<usize>, values: &Float64Array, has_rows: &[bool]) {
        let sums = self.values[run.clone()].iter_mut().zip(values.values());
        if let Some(nulls) = values.nulls().filter(|nulls| nulls.null_count() > 0) {
            let valid = self.valid.get_or_insert_with(|| Vec::from(has_rows));
            for (((sum, value), valid), is_valid) in sums.zip(&mut valid[run]).zip(nulls) {
                // The value under a NULL may be a NaN.
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

    /// Adds values. `has_rows` says which keys had rows before.
    fn add(&mut self, numbers: &Int64Array, values: &Float64Array, has_rows: &[bool]) {
        let numbers = numbers.values().iter().map(|number| *number as usize);
        if values.null_count() > 0 {
            self.valid.get_or_insert_with(|| has_rows.to_vec());
        }
        match &mut self.valid {
            None => {
                // Adding several rows to one sum in a register waits for its memory once.
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

/// Returns an upper bound of the keys below the next power of two, above all indexes if a key is negative.
fn upper_bound(numbers: &Int64Array) -> usize {
    let all = numbers.values().iter().fold(0, |all, number| all | number);
    usize::try_from(all).unwrap_or(usize::MAX)
}

/// Extends values with zeros.
fn zero_extend<T: Clone + Default + Copy>(values: &[T], length: usize) -> Vec<T> {
    let mut extended = vec![T::default(); length];
    extended[..values.len()].copy_from_slice(values);
    extended
}
