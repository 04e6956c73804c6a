//! Positions of keys: rows with equal keys have one number.
//!
//! Numbers follow the order of the keys and not that of the rows, so that sums over them are the same from run to run, in whatever
//! order the rows come.

use arrow::array::{Array, ArrayData, ArrayRef, AsArray, Float64Array};
use arrow::compute::cast;
use arrow::datatypes::{ArrowNativeType, DataType};
use arrow::row::{RowConverter, SortField};
use datafusion_common::{HashMap, Result};
use std::hash::Hash;

/// The position of a row that has none.
pub const NONE: u32 = u32::MAX;

/// So many numbers a table may have beside four for each row.
const FREE: usize = 1 << 16;

/// A key of rows, in batches.
pub struct Key {
    /// The values.
    pub values: Vec<ArrayRef>,
    /// Whether a row whose key is NULL has a position.
    pub nulls: bool,
}

/// The positions of rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Positions {
    /// The position of each row.
    pub of_rows: Vec<u32>,
    /// How many there are.
    pub count: usize,
}

/// Whether keys of a type have positions.
pub fn has_positions(data_type: &DataType) -> bool {
    match data_type {
        DataType::Float16 | DataType::Null | DataType::Interval(_) => false,
        DataType::Dictionary(..) | DataType::RunEndEncoded(..) => false,
        data_type => !data_type.is_nested(),
    }
}

impl Positions {
    /// The positions of so many rows with several keys, one if there is no key. None if there are more than numbers for them, or a
    /// float among them of which DataFusion's versions do not agree what it is equal to.
    pub fn of(keys: &[Key], rows: usize) -> Result<Option<Self>> {
        let mut all = Self { of_rows: vec![0; rows], count: usize::from(rows > 0) };
        for (number, key) in keys.iter().enumerate() {
            let Some(codes) = coded(key, rows)? else { return Ok(None) };
            all = if number == 0 { codes.dense() } else { all.with(&codes.dense()) };
            if all.count >= NONE as usize {
                return Ok(None);
            }
        }
        Ok(Some(all))
    }

    /// The positions by these and others.
    fn with(&self, other: &Self) -> Self {
        let pairs = self.of_rows.iter().zip(&other.of_rows);
        let width = other.count as u64;
        let pair = |(a, b): (&u32, &u32)| (*a != NONE && *b != NONE).then(|| u64::from(*a) * width + u64::from(*b));
        let count = self.count as u64 * width;
        if count <= limit(self.of_rows.len()) {
            let of_rows = pairs.map(pair).map(|code| code.map_or(NONE, |code| code as u32)).collect();
            return Self { of_rows, count: count as usize }.dense();
        }
        by_dictionary(pairs.map(pair))
    }

    /// By number, whether a row has it.
    pub fn has_rows(&self) -> Vec<bool> {
        let mut has_rows = vec![false; self.count];
        let mut missing = self.count;
        for position in self.of_rows.iter().filter(|position| **position != NONE) {
            missing -= usize::from(!std::mem::replace(&mut has_rows[*position as usize], true));
            if missing == 0 {
                break;
            }
        }
        has_rows
    }

    /// Whether each row has its own, in their order.
    pub fn are_rows(&self) -> bool {
        self.count == self.of_rows.len()
            && self.of_rows.iter().enumerate().all(|(row, position)| row == *position as usize)
    }

    /// The same without numbers that no row has.
    pub fn dense(self) -> Self {
        let has_rows = self.has_rows();
        if has_rows.iter().all(|has_rows| *has_rows) {
            return self;
        }
        let mut count = 0;
        let numbers = has_rows.into_iter().map(|has_rows| {
            count += u32::from(has_rows);
            count.wrapping_sub(1)
        });
        let numbers: Vec<_> = numbers.collect();
        let number = |code: u32| if code == NONE { NONE } else { numbers[code as usize] };
        Self { of_rows: self.of_rows.into_iter().map(number).collect(), count: count as usize }
    }
}

/// How many numbers a table for so many rows may have.
pub fn limit(rows: usize) -> u64 {
    (4 * rows + FREE) as u64
}

/// Numbers of the values of a key in their order. Not all of them need to be there.
fn coded(key: &Key, rows: usize) -> Result<Option<Positions>> {
    let Some(first) = key.values.first() else { return Ok(Some(Positions { of_rows: vec![], count: 0 })) };
    let width = first.data_type().primitive_width().filter(|width| *width <= 8);
    Ok(match (first.data_type(), width) {
        (DataType::Float64 | DataType::Float32, _) => {
            float_bits(key, rows)?.map(|bits| integers(bits.iter().copied(), rows, key.nulls))
        }
        (_, Some(1)) => Some(of_integers::<i8>(key, rows)),
        (_, Some(2)) => Some(of_integers::<i16>(key, rows)),
        (_, Some(4)) => Some(of_integers::<i32>(key, rows)),
        (_, Some(_)) => Some(of_integers::<i64>(key, rows)),
        (_, None) => Some(by_rows(key, rows)?),
    })
}

/// The bits of floats, in the order of the floats. None if there is a NaN or a negative zero.
fn float_bits(key: &Key, rows: usize) -> Result<Option<Vec<Option<i64>>>> {
    let mut all = Vec::with_capacity(rows);
    for array in &key.values {
        let array = cast(array, &DataType::Float64)?;
        let array: &Float64Array = array.as_primitive();
        for value in array {
            if value.is_some_and(|value| value.is_nan() || value == 0.0 && value.is_sign_negative()) {
                return Ok(None);
            }
            let bits = value.map(|value| value.to_bits() as i64);
            all.push(bits.map(|bits| if bits < 0 { bits ^ i64::MAX } else { bits }));
        }
    }
    Ok(Some(all))
}

/// The positions of integers, dates and times of one width. Those without a sign go by their bits, which is an order as well.
fn of_integers<T: ArrowNativeType + Into<i64>>(key: &Key, rows: usize) -> Positions {
    fn numbers<T: ArrowNativeType + Into<i64>>(part: &ArrayData) -> impl Iterator<Item = i64> + Clone {
        part.buffer::<T>(0)[..part.len()].iter().map(|number| (*number).into())
    }
    let parts: Vec<_> = key.values.iter().map(|array| array.to_data()).collect();
    if parts.iter().all(|part| part.null_count() == 0) {
        if let Some(close) = by_distance(parts.iter().map(|part| &part.buffer::<T>(0)[..part.len()]), rows) {
            return close;
        }
        return integers(parts.iter().flat_map(numbers::<T>).map(Some), rows, key.nulls);
    }
    let values = parts.iter().flat_map(|part| {
        let rows = numbers::<T>(part).enumerate();
        rows.map(|(row, number)| part.is_valid(row).then_some(number))
    });
    integers(values, rows, key.nulls)
}

/// The positions of small integers that lie close, of which none is NULL. Its loops are over slices, which makes them several times as
/// fast.
fn by_distance<'s, T: Copy + Into<i64> + 's>(
    parts: impl Iterator<Item = &'s [T]> + Clone,
    rows: usize,
) -> Option<Positions> {
    let all = parts.clone().flatten().map(|number| (*number).into());
    // Most are small, and processors compare several numbers of 32 bits at once.
    let none = (0, i32::MAX, i32::MIN);
    let (lost, least, greatest) = all.fold(none, |(lost, least, greatest), number| {
        let small = number as i32;
        (lost | (number ^ i64::from(small)), least.min(small), greatest.max(small))
    });
    if lost != 0 || least > greatest || u64::from(greatest.abs_diff(least)) >= limit(rows) {
        return None;
    }
    let mut of_rows = Vec::with_capacity(rows);
    for part in parts {
        of_rows.extend(part.iter().map(|number| ((*number).into() as u32).wrapping_sub(least as u32)));
    }
    Some(Positions { of_rows, count: greatest.abs_diff(least) as usize + 1 })
}

/// The positions of integers: by their distance from the least where they lie close, else by a dictionary.
fn integers(values: impl Iterator<Item = Option<i64>> + Clone, rows: usize, nulls: bool) -> Positions {
    // Loops within are those of the iterator, which are faster than ours over it.
    let none = (i64::MAX, i64::MIN, false);
    let (least, greatest, has_null) = values.clone().fold(none, |(least, greatest, has_null), value| match value {
        Some(value) => (least.min(value), greatest.max(value), has_null),
        None => (least, greatest, true),
    });
    // NULL comes before the least.
    let [null, first] = if has_null && nulls { [0, 1] } else { [NONE, 0] };
    if least > greatest {
        return Positions { of_rows: vec![null; rows], count: usize::from(first == 1) };
    }
    let range = greatest.abs_diff(least);
    if range < limit(rows) {
        let mut of_rows = Vec::with_capacity(rows);
        values.for_each(|value| of_rows.push(value.map_or(null, |value| value.abs_diff(least) as u32 + first)));
        return Positions { of_rows, count: range as usize + 1 + first as usize };
    }
    // Their order as numbers without a sign.
    let ranked = by_dictionary(values.map(|value| value.map(|value| (value as u64) ^ (1 << 63))));
    let number = |rank: u32| if rank == NONE { null } else { rank + first };
    Positions { of_rows: ranked.of_rows.into_iter().map(number).collect(), count: ranked.count + first as usize }
}

/// The positions of keys of any type, by their form as bytes.
fn by_rows(key: &Key, rows: usize) -> Result<Positions> {
    let Some(first) = key.values.first() else { return Ok(Positions { of_rows: vec![], count: 0 }) };
    let converter = RowConverter::new(vec![SortField::new(first.data_type().clone())])?;
    let mut all = converter.empty_rows(rows, 0);
    for array in &key.values {
        converter.append(&mut all, std::slice::from_ref(array))?;
    }
    let known = key.values.iter().flat_map(|array| (0..array.len()).map(|row| key.nulls || !array.is_null(row)));
    Ok(by_dictionary(all.iter().zip(known).map(|(row, known)| known.then(|| row.data()))))
}

/// The ranks of keys, none for those that there are not.
fn by_dictionary<K: Ord + Hash + Copy>(keys: impl Iterator<Item = Option<K>>) -> Positions {
    let mut numbers: HashMap<K, u32> = HashMap::default();
    let mut of_rows: Vec<_> = keys
        .map(|key| match key {
            Some(key) => {
                let next = numbers.len() as u32;
                *numbers.entry(key).or_insert(next)
            }
            None => NONE,
        })
        .collect();
    let count = numbers.len();
    let mut sorted: Vec<_> = numbers.into_iter().collect();
    sorted.sort_unstable();
    let mut ranks = vec![0; count];
    for (rank, (_, number)) in sorted.into_iter().enumerate() {
        ranks[number as usize] = rank as u32;
    }
    for number in of_rows.iter_mut().filter(|number| **number != NONE) {
        *number = ranks[*number as usize];
    }
    Positions { of_rows, count }
}
