//! Dictionary codes of keys: rows with equal keys have the same code.
//!
//! Codes follow the order of the keys and not the order of the rows, so sums over them are the same to the last bit in whatever order rows
//! arrive.

use arrow::array::{Array, ArrayData, ArrayRef, AsArray, Float64Array};
use arrow::compute::cast;
use arrow::datatypes::{ArrowNativeType, DataType};
use arrow::row::{RowConverter, SortField};
use datafusion_common::{HashMap, Result};
use std::hash::Hash;

/// The code of a row whose key matches nothing.
pub const NO_CODE: u32 = u32::MAX;

/// The number of codes that a table may have in addition to four for each row.
const MIN_TABLE: usize = 1 << 16;

/// One key column, in batches.
pub struct KeyColumn {
    /// The values.
    pub values: Vec<ArrayRef>,
    /// Whether NULL has a code, as it has where NULL equals NULL.
    pub nulls: bool,
}

/// The codes of rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyCodes {
    /// The code of each row.
    pub codes: Vec<u32>,
    /// The number of codes.
    pub count: usize,
}

/// Returns whether keys of a type can be encoded.
pub fn can_encode(data_type: &DataType) -> bool {
    match data_type {
        DataType::Float16 | DataType::Null | DataType::Interval(_) => false,
        DataType::Dictionary(..) | DataType::RunEndEncoded(..) => false,
        data_type => !data_type.is_nested(),
    }
}

impl KeyCodes {
    /// Encodes the tuples of several key columns. Without keys all rows have the same code. Returns `None` if there are too many codes, or
    /// for a NaN or -0.0, whose equality differs between DataFusion's versions.
    pub fn from_keys(keys: &[KeyColumn], rows: usize) -> Result<Option<Self>> {
        let mut all = Self { codes: vec![0; rows], count: usize::from(rows > 0) };
        for (number, key) in keys.iter().enumerate() {
            let Some(column) = encode_column(key, rows)? else { return Ok(None) };
            all = if number == 0 { column.compact() } else { all.combine(&column.compact()) };
            if all.count >= NO_CODE as usize {
                return Ok(None);
            }
        }
        Ok(Some(all))
    }

    /// Returns the codes of pairs of these and other codes.
    fn combine(&self, other: &Self) -> Self {
        let pairs = self.codes.iter().zip(&other.codes);
        let width = other.count as u64;
        let pair =
            |(a, b): (&u32, &u32)| (*a != NO_CODE && *b != NO_CODE).then(|| u64::from(*a) * width + u64::from(*b));
        let count = self.count as u64 * width;
        if count <= table_limit(self.codes.len()) {
            let codes = pairs.map(pair).map(|code| code.map_or(NO_CODE, |code| code as u32)).collect();
            return Self { codes, count: count as usize }.compact();
        }
        encode_by_dictionary(pairs.map(pair))
    }

    /// Returns for each code whether a row has it.
    pub fn used_codes(&self) -> Vec<bool> {
        let mut used = vec![false; self.count];
        let mut missing = self.count;
        for position in self.codes.iter().filter(|position| **position != NO_CODE) {
            missing -= usize::from(!std::mem::replace(&mut used[*position as usize], true));
            if missing == 0 {
                break;
            }
        }
        used
    }

    /// Returns whether the code of each row is its index.
    pub fn is_identity(&self) -> bool {
        self.count == self.codes.len() && self.codes.iter().enumerate().all(|(row, position)| row == *position as usize)
    }

    /// Renumbers the codes without those that no row has.
    pub fn compact(self) -> Self {
        let used = self.used_codes();
        if used.iter().all(|used| *used) {
            return self;
        }
        let mut count = 0;
        let numbers = used.into_iter().map(|used| {
            count += u32::from(used);
            count.wrapping_sub(1)
        });
        let numbers: Vec<_> = numbers.collect();
        let number = |code: u32| if code == NO_CODE { NO_CODE } else { numbers[code as usize] };
        Self { codes: self.codes.into_iter().map(number).collect(), count: count as usize }
    }
}

/// Returns how many entries a table over a number of rows may have.
pub fn table_limit(rows: usize) -> u64 {
    (4 * rows + MIN_TABLE) as u64
}

/// Encodes one column in the order of its values. Some codes may be unused.
fn encode_column(key: &KeyColumn, rows: usize) -> Result<Option<KeyCodes>> {
    let Some(first) = key.values.first() else { return Ok(Some(KeyCodes { codes: vec![], count: 0 })) };
    let width = first.data_type().primitive_width().filter(|width| *width <= 8);
    Ok(match (first.data_type(), width) {
        (DataType::Float64 | DataType::Float32, _) => {
            order_preserving_bits(key, rows)?.map(|bits| encode_integers(bits.iter().copied(), rows, key.nulls))
        }
        (_, Some(1)) => Some(encode_primitive::<i8>(key, rows)),
        (_, Some(2)) => Some(encode_primitive::<i16>(key, rows)),
        (_, Some(4)) => Some(encode_primitive::<i32>(key, rows)),
        (_, Some(_)) => Some(encode_primitive::<i64>(key, rows)),
        (_, None) => Some(encode_rows(key, rows)?),
    })
}

/// Maps floats to integers of the same order. Returns `None` if there is a NaN or -0.0.
fn order_preserving_bits(key: &KeyColumn, rows: usize) -> Result<Option<Vec<Option<i64>>>> {
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

/// Encodes integers, dates and times of one width. Unsigned ones are ordered by their bits, which is also a total order.
fn encode_primitive<T: ArrowNativeType + Into<i64>>(key: &KeyColumn, rows: usize) -> KeyCodes {
    fn numbers<T: ArrowNativeType + Into<i64>>(part: &ArrayData) -> impl Iterator<Item = i64> + Clone {
        part.buffer::<T>(0)[..part.len()].iter().map(|number| (*number).into())
    }
    let parts: Vec<_> = key.values.iter().map(|array| array.to_data()).collect();
    if parts.iter().all(|part| part.null_count() == 0) {
        if let Some(codes) = encode_dense_range(parts.iter().map(|part| &part.buffer::<T>(0)[..part.len()]), rows) {
            return codes;
        }
        return encode_integers(parts.iter().flat_map(numbers::<T>).map(Some), rows, key.nulls);
    }
    let values = parts.iter().flat_map(|part| {
        let rows = numbers::<T>(part).enumerate();
        rows.map(|(row, number)| part.is_valid(row).then_some(number))
    });
    encode_integers(values, rows, key.nulls)
}

/// Encodes small integers in a narrow range, none of them NULL, by their distance from the least. The loops run over slices, which makes
/// them several times as fast.
fn encode_dense_range<'s, T: Copy + Into<i64> + 's>(
    parts: impl Iterator<Item = &'s [T]> + Clone,
    rows: usize,
) -> Option<KeyCodes> {
    let all = parts.clone().flatten().map(|number| (*number).into());
    // Most are small, and processors compare several numbers of 32 bits at once.
    let none = (0, i32::MAX, i32::MIN);
    let (overflow, least, greatest) = all.fold(none, |(overflow, least, greatest), number| {
        let small = number as i32;
        (overflow | (number ^ i64::from(small)), least.min(small), greatest.max(small))
    });
    if overflow != 0 || least > greatest || u64::from(greatest.abs_diff(least)) >= table_limit(rows) {
        return None;
    }
    let mut codes = Vec::with_capacity(rows);
    for part in parts {
        codes.extend(part.iter().map(|number| ((*number).into() as u32).wrapping_sub(least as u32)));
    }
    Some(KeyCodes { codes, count: greatest.abs_diff(least) as usize + 1 })
}

/// Encodes integers: by their distance from the least if the range is narrow, else by a dictionary.
fn encode_integers(values: impl Iterator<Item = Option<i64>> + Clone, rows: usize, nulls: bool) -> KeyCodes {
    // Internal iteration is faster here than a loop.
    let none = (i64::MAX, i64::MIN, false);
    let (least, greatest, has_null) = values.clone().fold(none, |(least, greatest, has_null), value| match value {
        Some(value) => (least.min(value), greatest.max(value), has_null),
        None => (least, greatest, true),
    });
    // NULL comes before the least.
    let [null, first] = if has_null && nulls { [0, 1] } else { [NO_CODE, 0] };
    if least > greatest {
        return KeyCodes { codes: vec![null; rows], count: usize::from(first == 1) };
    }
    let range = greatest.abs_diff(least);
    if range < table_limit(rows) {
        let mut codes = Vec::with_capacity(rows);
        values.for_each(|value| codes.push(value.map_or(null, |value| value.abs_diff(least) as u32 + first)));
        return KeyCodes { codes, count: range as usize + 1 + first as usize };
    }
    // Flipping the sign bit keeps the order as unsigned numbers.
    let ranked = encode_by_dictionary(values.map(|value| value.map(|value| (value as u64) ^ (1 << 63))));
    let number = |rank: u32| if rank == NO_CODE { null } else { rank + first };
    KeyCodes { codes: ranked.codes.into_iter().map(number).collect(), count: ranked.count + first as usize }
}

/// Encodes keys of any type by Arrow's row format.
fn encode_rows(key: &KeyColumn, rows: usize) -> Result<KeyCodes> {
    let Some(first) = key.values.first() else { return Ok(KeyCodes { codes: vec![], count: 0 }) };
    let converter = RowConverter::new(vec![SortField::new(first.data_type().clone())])?;
    let mut all = converter.empty_rows(rows, 0);
    for array in &key.values {
        converter.append(&mut all, std::slice::from_ref(array))?;
    }
    let has_code = key.values.iter().flat_map(|array| (0..array.len()).map(|row| key.nulls || !array.is_null(row)));
    Ok(encode_by_dictionary(all.iter().zip(has_code).map(|(row, has_code)| has_code.then(|| row.data()))))
}

/// Encodes keys by their rank among the distinct ones, missing keys as [`NO_CODE`].
fn encode_by_dictionary<K: Ord + Hash + Copy>(keys: impl Iterator<Item = Option<K>>) -> KeyCodes {
    let mut numbers: HashMap<K, u32> = HashMap::default();
    let mut codes: Vec<_> = keys
        .map(|key| match key {
            Some(key) => {
                let next = numbers.len() as u32;
                *numbers.entry(key).or_insert(next)
            }
            None => NO_CODE,
        })
        .collect();
    let count = numbers.len();
    let mut sorted: Vec<_> = numbers.into_iter().collect();
    sorted.sort_unstable();
    let mut ranks = vec![0; count];
    for (rank, (_, number)) in sorted.into_iter().enumerate() {
        ranks[number as usize] = rank as u32;
    }
    for number in codes.iter_mut().filter(|number| **number != NO_CODE) {
        *number = ranks[*number as usize];
    }
    KeyCodes { codes, count }
}
