//! Rows by keys that no two of them have in common.

use arrow::array::{Array, ArrayRef, Int64Array, UInt32Array};
use arrow::compute::{max, min};
use datafusion_common::Result;

use crate::integers::{consecutive_start, to_integers};
use crate::key_codes::{NO_CODE, table_limit};

/// The rows of a relation by their keys.
#[derive(Debug)]
pub struct UniqueIndex {
    /// The values of each key.
    ranges: Vec<KeyRange>,
    /// The row at each place, `NONE` if there is none, if each row is not at its own. A place is the number of all keys together.
    rows: Option<Vec<u32>>,
}

/// The values of a key from the least on, and NULL before them if it is a key.
#[derive(Debug, Clone, Copy)]
struct KeyRange {
    least: i64,
    width: usize,
    nulls: bool,
}

/// Where the partners of rows stand among the rows of a relation.
#[derive(Debug)]
pub enum Matches {
    /// One after the other from a row on, as many as there are rows that ask.
    Range(usize),
    /// At these rows, NULL where there is none.
    Rows(UInt32Array),
}

impl UniqueIndex {
    /// So many rows by these keys. None if two rows have the same, or if the keys lie too far apart. A row has no place if a key of it is
    /// NULL and `nulls` does not say that this is a key.
    ///
    /// # Errors
    /// If the keys have no numbers.
    pub fn try_new(keys: &[ArrayRef], rows: usize, nulls: bool) -> Result<Option<Self>> {
        let keys = keys.iter().map(to_integers).collect::<Result<Vec<_>>>()?;
        if let [key] = keys.as_slice()
            && let Some(least) = consecutive_start(key)
        {
            let range = KeyRange { least, width: rows + usize::from(nulls), nulls };
            return Ok((range.width < NO_CODE as usize).then(|| Self { ranges: vec![range], rows: None }));
        }
        let mut ranges: Vec<_> = keys.iter().map(|key| KeyRange::new(key, nulls)).collect();
        // Where a key has no value, no row has a place, whatever the other keys are.
        if let Some(empty) = ranges.iter().copied().find(|range| range.width == 0) {
            ranges = vec![empty];
        }
        let slots = ranges.iter().fold(1_usize, |slots, range| slots.saturating_mul(range.width));
        if slots as u64 > table_limit(rows) || slots >= NO_CODE as usize {
            return Ok(None);
        }
        let mut row_at = vec![NO_CODE; slots];
        for (row, slot) in find_slots(&ranges, &keys, rows).into_iter().enumerate() {
            if slot != NO_CODE && std::mem::replace(&mut row_at[slot as usize], row as u32) != NO_CODE {
                return Ok(None);
            }
        }
        Ok(Some(Self { ranges, rows: Some(row_at) }))
    }

    /// For each of so many rows of another relation the row with the same keys.
    ///
    /// # Errors
    /// If the keys have no numbers.
    pub fn look_up(&self, keys: &[ArrayRef], rows: usize) -> Result<Matches> {
        let keys = keys.iter().map(to_integers).collect::<Result<Vec<_>>>()?;
        if let Some(first) = self.look_up_range(&keys) {
            return Ok(Matches::Range(first));
        }
        let found: Vec<_> = find_slots(&self.ranges, &keys, rows).into_iter().map(|slot| self.row_at(slot)).collect();
        if found.contains(&NO_CODE) {
            return Ok(Matches::Rows(found.into_iter().map(|row| (row != NO_CODE).then_some(row)).collect()));
        }
        Ok(Matches::Rows(UInt32Array::from(found)))
    }

    /// The row at a place, none if there is none.
    fn row_at(&self, slot: u32) -> u32 {
        match (&self.rows, slot) {
            (_, NO_CODE) => NO_CODE,
            (Some(rows), slot) => rows[slot as usize],
            // The place of NULL comes before all others, and before the first row is none.
            (None, slot) => slot.wrapping_sub(u32::from(self.ranges[0].nulls)),
        }
    }

    /// The first of the rows with these keys, if both these and those of all rows follow each other.
    fn look_up_range(&self, keys: &[Int64Array]) -> Option<usize> {
        let (None, [key], [range]) = (&self.rows, keys, self.ranges.as_slice()) else { return None };
        let first = consecutive_start(key)?.checked_sub(range.least).and_then(|first| usize::try_from(first).ok())?;
        (first.saturating_add(key.len()) <= range.values()).then_some(first)
    }

    /// The memory that it takes, in bytes.
    pub fn memory_size(&self) -> usize {
        self.rows.as_ref().map_or(0, |rows| rows.len() * size_of::<u32>())
    }
}

/// The places of rows with these keys.
fn find_slots(ranges: &[KeyRange], keys: &[Int64Array], rows: usize) -> Vec<u32> {
    let mut slots = vec![0; rows];
    for (key, range) in keys.iter().zip(ranges) {
        if key.null_count() == 0 {
            let values = slots.iter_mut().zip(key.values());
            values.for_each(|(slot, value)| *slot = range.slot_of(*slot, *value));
        } else {
            slots.iter_mut().zip(key).for_each(|(slot, value)| *slot = range.slot(*slot, value));
        }
    }
    slots
}

impl KeyRange {
    fn new(key: &Int64Array, nulls: bool) -> Self {
        let values = min(key).zip(max(key)).map(|(least, greatest)| (least, greatest.abs_diff(least)));
        let (least, width) = values.map_or((0, 0), |(least, range)| (least, (range as usize).saturating_add(1)));
        Self { least, width: width.saturating_add(usize::from(nulls)), nulls }
    }

    /// How many values there are beside NULL.
    fn values(self) -> usize {
        self.width - usize::from(self.nulls)
    }

    /// The place of a value of this key, or of NULL, among those of a place of the keys before.
    fn slot(self, before: u32, value: Option<i64>) -> u32 {
        match value {
            Some(value) => self.slot_of(before, value),
            None if self.nulls && before != NO_CODE => before * self.width as u32,
            None => NO_CODE,
        }
    }

    /// The place of a value of this key among those of a place of the keys before.
    fn slot_of(self, before: u32, value: i64) -> u32 {
        // What is less than the least comes out greater than the distance to any value.
        let distance = value.wrapping_sub(self.least) as u64;
        // Both are less than the number of places, which `NONE` is not.
        if before == NO_CODE || distance >= self.values() as u64 {
            return NO_CODE;
        }
        before * self.width as u32 + distance as u32 + u32::from(self.nulls)
    }
}
