//! Sums grouped by one or two integer keys.

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
use crate::pair_slots::PairSlots;

/// Keys below this are always indexes, and larger ones up to so many times the number of rows.
const ALWAYS_DENSE: usize = 1 << 22;
const MAX_KEYS_PER_ROW: usize = 64;

/// The columns of an input.
#[derive(Debug, Clone)]
pub struct SumColumns {
    /// The integer keys, one or two.
    pub keys: Vec<usize>,
    /// The summed columns, in the order of the sums.
    pub summed: Vec<usize>,
}

/// The sums of the rows so far.
#[derive(Debug)]
pub struct IntegerKeySums {
    columns: SumColumns,
    /// The number of rows.
    rows: usize,
    /// The slots of pairs of keys. One key is its own slot.
    pairs: Option<PairSlots>,
    /// By slot, whether it has rows.
    has_rows: Vec<bool>,
    sums: Vec<ColumnSums>,
}

/// The sums of one column.
#[derive(Debug, Default)]
struct ColumnSums {
    /// By slot, 0 where there is none.
    values: Vec<f64>,
    /// By slot, whether it has a value that is not NULL; `None` if all slots with rows have.
    valid: Option<Vec<bool>>,
}

/// Returns whether keys of a type can be summed by.
pub fn is_integer_key_type(data_type: &DataType) -> bool {
    data_type.is_integer()
}

impl IntegerKeySums {
    /// Creates the sums of no rows.
    pub fn new(columns: SumColumns) -> Self {
        let sums = columns.summed.iter().map(|_| ColumnSums::default()).collect();
        let pairs = (columns.keys.len() > 1).then(PairSlots::default);
        Self { columns, rows: 0, pairs, has_rows: vec![], sums }
    }

    /// Adds rows. Returns false, and adds nothing, if a key is no index or memory has run out.
    ///
    /// # Errors
    /// If a column has another type.
    pub fn add(&mut self, batch: &RecordBatch, reservation: &MemoryReservation) -> Result<bool> {
        // Unsigned keys above all indexes are negative as integers.
        let keys = self.columns.keys.iter().map(|key| to_integers(batch.column(*key)));
        let keys = keys.collect::<Result<Vec<_>>>()?;
        if batch.num_rows() == 0 || keys.iter().any(|key| key.null_count() > 0) {
            return Ok(batch.num_rows() == 0);
        }
        let found = match (&mut self.pairs, keys.as_slice()) {
            (Some(pairs), [first, second]) => pairs.find_or_insert([first.values(), second.values()], reservation),
            (_, [key, ..]) => Some(key.clone()),
            (_, []) => None,
        };
        let Some(numbers) = &found else { return Ok(false) };
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
        let slots = match (&mut self.pairs, &other.pairs) {
            (Some(pairs), Some(others)) => match pairs.find_or_insert(others.keys(), reservation) {
                None => return false,
                slots => slots,
            },
            _ => None,
        };
        let count = self.pairs.as_ref().map_or(other.has_rows.len(), PairSlots::len);
        if !self.try_reserve(count, reservation) {
            return false;
        }
        match slots {
            Some(slots) => self.merge_at(slots.values().iter().map(|slot| *slot as usize), other),
            None => self.merge_at(0..other.has_rows.len(), other),
        }
        true
    }

    /// Adds the sums of other rows, each to the one in this slot.
    fn merge_at(&mut self, slots: impl Iterator<Item = usize> + Clone, other: &Self) {
        for (sum, other_sum) in self.sums.iter_mut().zip(&other.sums) {
            if sum.valid.is_some() || other_sum.valid.is_some() {
                let own = sum.valid.get_or_insert_with(|| self.has_rows.clone());
                let valid = other_sum.valid.as_ref().unwrap_or(&other.has_rows);
                slots.clone().zip(valid).for_each(|(slot, valid)| own[slot] |= valid);
            }
            slots.clone().zip(&other_sum.values).for_each(|(slot, value)| sum.values[slot] += value);
        }
        slots.zip(&other.has_rows).for_each(|(slot, has_rows)| self.has_rows[slot] |= has_rows);
        self.rows += other.rows;
    }

    /// Divides the slots into ranges.
    pub fn slot_ranges(&self, size: usize) -> impl Iterator<Item = Range<usize>> + use<> {
        let (count, size) = (self.has_rows.len(), size.max(1));
        (0..count).step_by(size).map(move |first| first..count.min(first + size))
    }

    /// Returns the rows of the result: keys, then sums.
    ///
    /// # Errors
    /// If the schema has other columns.
    pub fn to_result(&self, schema: &SchemaRef) -> Result<RecordBatch> {
        let slots = self.occupied_slots(0..self.has_rows.len());
        let keys = 0..self.columns.keys.len();
        let mut columns = keys
            .map(|key| self.key_to_array(key, &slots, schema.field(key).data_type()))
            .collect::<Result<Vec<_>>>()?;
        columns.extend(self.sums.iter().map(|sum| sum.to_array(&slots)));
        Ok(RecordBatch::try_new(Arc::clone(schema), columns)?)
    }

    /// Returns rows of the schema of the input with the same sums as the rows added so far, for a range of slots. Columns that are neither
    /// key nor summed are NULL.
    ///
    /// # Errors
    /// If the schema has other columns.
    pub fn to_input_rows(&self, slots: Range<usize>, schema: &SchemaRef) -> Result<RecordBatch> {
        let slots = self.occupied_slots(slots);
        let nulls = schema.fields().iter().map(|field| new_null_array(field.data_type(), slots.len()));
        let mut columns = nulls.collect::<Vec<_>>();
        for (key, position) in self.columns.keys.iter().enumerate() {
            columns[*position] = self.key_to_array(key, &slots, schema.field(*position).data_type())?;
        }
        for (position, sum) in self.columns.summed.iter().zip(&self.sums) {
            columns[*position] = sum.to_array(&slots);
        }
        Ok(RecordBatch::try_new(Arc::clone(schema), columns)?)
    }

    /// Returns the slots of a range that have rows.
    fn occupied_slots(&self, slots: Range<usize>) -> SlotSet {
        let has_rows = &self.has_rows[slots.clone()];
        let last = has_rows.iter().rposition(|has_rows| *has_rows).map_or(0, |last| last + 1);
        if has_rows[..last].iter().all(|has_rows| *has_rows) {
            return SlotSet::Range(slots.start..slots.start + last);
        }
        SlotSet::List(slots.filter(|slot| self.has_rows[*slot]).collect())
    }

    /// Returns a key of slots as an array.
    fn key_to_array(&self, key: usize, slots: &SlotSet, data_type: &DataType) -> Result<ArrayRef> {
        fn collect<T: ArrowPrimitiveType>(slots: &SlotSet, of: impl Fn(usize) -> T::Native) -> ArrayRef {
            Arc::new(match slots {
                SlotSet::Range(run) => PrimitiveArray::<T>::from_iter_values(run.clone().map(of)),
                SlotSet::List(slots) => PrimitiveArray::<T>::from_iter_values(slots.iter().copied().map(of)),
            })
        }
        let key_of = |slot: usize| match &self.pairs {
            Some(pairs) => pairs.keys()[key][slot],
            None => slot as i64,
        };
        match data_type {
            // Their bits are those of the integers.
            DataType::UInt64 => Ok(collect::<UInt64Type>(slots, |slot| key_of(slot) as u64)),
            data_type => Ok(cast(&collect::<Int64Type>(slots, key_of), data_type)?),
        }
    }
}

/// Slots that have rows.
enum SlotSet {
    /// Consecutive slots.
    Range(Range<usize>),
    List(Vec<usize>),
}

impl SlotSet {
    fn len(&self) -> usize {
        match self {
            Self::Range(run) => run.len(),
            Self::List(slots) => slots.len(),
        }
    }
}

impl ColumnSums {
    /// Returns the sums of slots as an array.
    fn to_array(&self, slots: &SlotSet) -> ArrayRef {
        let (values, valid): (Vec<_>, Option<NullBuffer>) = match slots {
            SlotSet::Range(run) => {
                let valid = self.valid.as_ref().map(|valid| NullBuffer::from(&valid[run.clone()]));
                (self.values[run.clone()].to_vec(), valid)
            }
            SlotSet::List(slots) => {
                let valid = self.valid.as_ref();
                let valid = valid.map(|valid| slots.iter().map(|slot| valid[*slot]).collect());
                (slots.iter().map(|slot| self.values[*slot]).collect(), valid)
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
