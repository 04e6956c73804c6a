//! An index over unique integer keys.

use arrow::array::{Array, ArrayRef, Int64Array, UInt32Array};
use arrow::compute::{max, min};
use datafusion_common::Result;

use crate::integers::{consecutive_start, to_integers};
use crate::key_codes::{NO_CODE, table_limit};

/// The rows of a relation by unique keys.
///
/// The tuple of keys of a row, read as digits of a mixed-radix number, is its *slot* in an array of rows.
#[derive(Debug)]
pub struct UniqueIndex {
    /// The range of each key.
    ranges: Vec<KeyRange>,
    /// The row of each slot, [`NO_CODE`] if it has none; `None` if rows are consecutive in the order of their only key.
    rows: Option<Vec<u32>>,
}

/// The range of a key. NULL, where it is a key, comes before the least.
#[derive(Debug, Clone, Copy)]
struct KeyRange {
    least: i64,
    width: usize,
    nulls: bool,
}

/// The rows that match those of another relation.
#[derive(Debug)]
pub enum Matches {
    /// Consecutive rows from this one on.
    Range(usize),
    /// These rows, NULL where there is no match.
    Rows(UInt32Array),
}

impl UniqueIndex {
    /// Indexes rows by these keys. Returns `None` if two rows have the same keys, or if the keys are too sparse. `nulls` says whether NULL
    /// is a key; else a row with NULL has no slot.
    ///
    /// # Errors
    /// If the keys have no integers.
    pub fn try_new(keys: &[ArrayRef], rows: usize, nulls: bool) -> Result<Option<Self>> {
        let keys = keys.iter().map(to_integers).collect::<Result<Vec<_>>>()?;
        if let [key] = keys.as_slice()
            && let Some(least) = consecutive_start(key)
        {
            let range = KeyRange { least, width: rows + usize::from(nulls), nulls };
            return Ok((range.width < NO_CODE as usize).then(|| Self { ranges: vec![range], rows: None }));
        }
        let mut ranges: Vec<_> = keys.iter().map(|key| KeyRange::new(key, nulls)).collect();
        // Where a key is never set, no row has a slot, whatever the other keys are.
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

    /// Finds the row with the same keys for each row of another relation.
    ///
    /// # Errors
    /// If the keys have no integers.
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

    /// Returns the row of a slot, [`NO_CODE`] if it has none.
    fn row_at(&self, slot: u32) -> u32 {
        match (&self.rows, slot) {
            (_, NO_CODE) => NO_CODE,
            (Some(rows), slot) => rows[slot as usize],
            // The slot of NULL comes first, and subtracting one from it gives [`NO_CODE`].
            (None, slot) => slot.wrapping_sub(u32::from(self.ranges[0].nulls)),
        }
    }

    /// Returns the first row with these keys, if both these keys and those of the index are consecutive.
    fn look_up_range(&self, keys: &[Int64Array]) -> Option<usize> {
        let (None, [key], [range]) = (&self.rows, keys, self.ranges.as_slice()) else { return None };
        let first = consecutive_start(key)?.checked_sub(range.least).and_then(|first| usize::try_from(first).ok())?;
        (first.saturating_add(key.len()) <= range.values()).then_some(first)
    }

    /// Returns the memory of the index in bytes.
    pub fn memory_size(&self) -> usize {
        self.rows.as_ref().map_or(0, |rows| rows.len() * size_of::<u32>())
    }
}

/// Computes the slots of rows.
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

    /// Returns the number of values without NULL.
    fn values(self) -> usize {
        self.width - usize::from(self.nulls)
    }

    /// Returns the slot of a value or NULL, given the slot by the keys before.
    fn slot(self, before: u32, value: Option<i64>) -> u32 {
        match value {
            Some(value) => self.slot_of(before, value),
            None if self.nulls && before != NO_CODE => before * self.width as u32,
            None => NO_CODE,
        }
    }

    /// Returns the slot of a value, given the slot by the keys before.
    fn slot_of(self, before: u32, value: i64) -> u32 {
        // A value below the least wraps to a distance above all others.
        let distance = value.wrapping_sub(self.least) as u64;
        // Both are less than the number of slots, which [`NO_CODE`] is not.
        if before == NO_CODE || distance >= self.values() as u64 {
            return NO_CODE;
        }
        before * self.width as u32 + distance as u32 + u32::from(self.nulls)
    }
}
