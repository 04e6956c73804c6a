//! Rows by keys that no two of them have in common.

use arrow::array::{Array, ArrayRef, Int64Array, UInt32Array};
use arrow::compute::{max, min};
use datafusion_common::Result;

use crate::integers::{numbers, run};
use crate::keys::{NONE, limit};

/// The rows of a relation by their keys.
#[derive(Debug)]
pub struct Unique {
    /// The values of each key.
    spans: Vec<Span>,
    /// The row at each place, `NONE` if there is none, if each row is not at its own. A place is the number of all keys together.
    rows: Option<Vec<u32>>,
}

/// The values of a key from the least on, and NULL before them if it is a key.
#[derive(Debug, Clone, Copy)]
struct Span {
    least: i64,
    width: usize,
    nulls: bool,
}

/// Where the partners of rows stand among the rows of a relation.
#[derive(Debug)]
pub enum Partners {
    /// One after the other from a row on, as many as there are rows that ask.
    Run(usize),
    /// At these rows, NULL where there is none.
    At(UInt32Array),
}

impl Unique {
    /// So many rows by these keys. None if two rows have the same, or if the keys lie too far apart. A row has no place if a key of it is
    /// NULL and `nulls` does not say that this is a key.
    ///
    /// # Errors
    /// If the keys have no numbers.
    pub fn of(keys: &[ArrayRef], rows: usize, nulls: bool) -> Result<Option<Self>> {
        let keys = keys.iter().map(numbers).collect::<Result<Vec<_>>>()?;
        if let [key] = keys.as_slice()
            && let Some(least) = run(key)
        {
            let span = Span { least, width: rows + usize::from(nulls), nulls };
            return Ok((span.width < NONE as usize).then(|| Self { spans: vec![span], rows: None }));
        }
        let mut spans: Vec<_> = keys.iter().map(|key| Span::of(key, nulls)).collect();
        // Where a key has no value, no row has a place, whatever the other keys are.
        if let Some(nothing) = spans.iter().copied().find(|span| span.width == 0) {
            spans = vec![nothing];
        }
        let places = spans.iter().fold(1_usize, |places, span| places.saturating_mul(span.width));
        if places as u64 > limit(rows) || places >= NONE as usize {
            return Ok(None);
        }
        let mut at = vec![NONE; places];
        for (row, place) in all_places(&spans, &keys, rows).into_iter().enumerate() {
            if place != NONE && std::mem::replace(&mut at[place as usize], row as u32) != NONE {
                return Ok(None);
            }
        }
        Ok(Some(Self { spans, rows: Some(at) }))
    }

    /// For each of so many rows of another relation the row with the same keys.
    ///
    /// # Errors
    /// If the keys have no numbers.
    pub fn partners(&self, keys: &[ArrayRef], rows: usize) -> Result<Partners> {
        let keys = keys.iter().map(numbers).collect::<Result<Vec<_>>>()?;
        if let Some(first) = self.run_of(&keys) {
            return Ok(Partners::Run(first));
        }
        let found: Vec<_> = all_places(&self.spans, &keys, rows).into_iter().map(|place| self.row(place)).collect();
        if found.contains(&NONE) {
            return Ok(Partners::At(found.into_iter().map(|row| (row != NONE).then_some(row)).collect()));
        }
        Ok(Partners::At(UInt32Array::from(found)))
    }

    /// The row at a place, none if there is none.
    fn row(&self, place: u32) -> u32 {
        match (&self.rows, place) {
            (_, NONE) => NONE,
            (Some(rows), place) => rows[place as usize],
            // The place of NULL comes before all others, and before the first row is none.
            (None, place) => place.wrapping_sub(u32::from(self.spans[0].nulls)),
        }
    }

    /// The first of the rows with these keys, if both these and those of all rows follow each other.
    fn run_of(&self, keys: &[Int64Array]) -> Option<usize> {
        let (None, [key], [span]) = (&self.rows, keys, self.spans.as_slice()) else { return None };
        let first = run(key)?.checked_sub(span.least).and_then(|first| usize::try_from(first).ok())?;
        (first.saturating_add(key.len()) <= span.values()).then_some(first)
    }

    /// The memory that it takes, in bytes.
    pub fn memory(&self) -> usize {
        self.rows.as_ref().map_or(0, |rows| rows.len() * size_of::<u32>())
    }
}

/// The places of rows with these keys.
fn all_places(spans: &[Span], keys: &[Int64Array], rows: usize) -> Vec<u32> {
    let mut places = vec![0; rows];
    for (key, span) in keys.iter().zip(spans) {
        if key.null_count() == 0 {
            let values = places.iter_mut().zip(key.values());
            values.for_each(|(place, value)| *place = span.place_of(*place, *value));
        } else {
            places.iter_mut().zip(key).for_each(|(place, value)| *place = span.place(*place, value));
        }
    }
    places
}

impl Span {
    fn of(key: &Int64Array, nulls: bool) -> Self {
        let values = min(key).zip(max(key)).map(|(least, greatest)| (least, greatest.abs_diff(least)));
        let (least, width) = values.map_or((0, 0), |(least, range)| (least, (range as usize).saturating_add(1)));
        Self { least, width: width.saturating_add(usize::from(nulls)), nulls }
    }

    /// How many values there are beside NULL.
    fn values(self) -> usize {
        self.width - usize::from(self.nulls)
    }

    /// The place of a value of this key, or of NULL, among those of a place of the keys before.
    fn place(self, before: u32, value: Option<i64>) -> u32 {
        match value {
            Some(value) => self.place_of(before, value),
            None if self.nulls && before != NONE => before * self.width as u32,
            None => NONE,
        }
    }

    /// The place of a value of this key among those of a place of the keys before.
    fn place_of(self, before: u32, value: i64) -> u32 {
        // What is less than the least comes out greater than the distance to any value.
        let distance = value.wrapping_sub(self.least) as u64;
        // Both are less than the number of places, which `NONE` is not.
        if before == NONE || distance >= self.values() as u64 {
            return NONE;
        }
        before * self.width as u32 + distance as u32 + u32::from(self.nulls)
    }
}
