//! Matches the rows of two iterations.

use arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch, UInt64Array};
use arrow::compute::{concat, take};
use arrow::datatypes::{Schema, SchemaRef};
use arrow::row::{RowConverter, Rows, SortField};
use datafusion_common::{HashMap, Result, internal_datafusion_err};
use std::sync::Arc;

use super::batch::batch_of;
use super::iterations::State;

/// Returns the rows of an iteration as one batch, under the names of a schema. The rows of a later iteration may have NULL where the first
/// have not.
///
/// # Errors
/// If they have other columns.
pub fn whole(rows: &State, schema: &SchemaRef) -> Result<RecordBatch> {
    let column = |index: usize| {
        let values: Vec<_> = rows.batches.iter().map(|batch| batch.column(index).as_ref()).collect();
        Ok(concat(&values)?)
    };
    let fields = schema.fields().iter().map(|field| field.as_ref().clone().with_nullable(true));
    let nullable = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    batch_of(&nullable, (0..schema.fields().len()).map(column).collect::<Result<_>>()?, rows.count())
}

/// The columns of two iterations, classified by how they help to match rows.
#[derive(Debug, Default)]
pub struct Compared {
    /// They have the same values in both, in any order.
    pub equal: Vec<usize>,
    /// They have one value in all rows of each, as a number of the iteration has.
    pub counting: Vec<usize>,
    /// All others.
    pub other: Vec<usize>,
}

impl Compared {
    /// Creates the columns of rows of the same number.
    ///
    /// # Errors
    /// If values of a type cannot be compared.
    pub fn try_new(before: &RecordBatch, last: &RecordBatch) -> Result<Self> {
        let mut compared = Self::default();
        for index in 0..last.num_columns() {
            let [one, other] = values([before, last], &[index])?;
            let is_one = |rows: &Rows| rows.iter().all(|row| row == rows.row(0));
            let kind = match (sorted(&one) == sorted(&other), is_one(&one) && is_one(&other)) {
                (true, _) => &mut compared.equal,
                (false, true) => &mut compared.counting,
                (false, false) => &mut compared.other,
            };
            kind.push(index);
        }
        Ok(compared)
    }
}

/// The reason why rows cannot be matched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unmatched {
    /// Two rows have the same values.
    Twice,
    /// A row is in one of the iterations only.
    Missing,
}

/// Returns, for each row of `of`, the position of the row of `among` with the same values in some columns.
///
/// # Errors
/// If values of a type cannot be compared. Inside, if rows are none or several.
pub fn positions(
    of: &RecordBatch,
    among: &RecordBatch,
    columns: &[usize],
) -> Result<std::result::Result<UInt64Array, Unmatched>> {
    let [of, among] = values([of, among], columns)?;
    let mut known = HashMap::with_capacity(among.num_rows());
    for (position, row) in among.iter().enumerate() {
        if known.insert(row.data().to_vec(), position as u64).is_some() {
            return Ok(Err(Unmatched::Twice));
        }
    }
    let mut taken = vec![false; among.num_rows()];
    let mut positions = Vec::with_capacity(of.num_rows());
    for row in &of {
        let Some(position) = known.get(row.data()) else { return Ok(Err(Unmatched::Missing)) };
        if std::mem::replace(&mut taken[*position as usize], true) {
            return Ok(Err(Unmatched::Twice));
        }
        positions.push(*position);
    }
    Ok(if taken.contains(&false) { Err(Unmatched::Missing) } else { Ok(positions.into()) })
}

/// Returns whether a column has the same values to the last bit, where row `positions[n]` of `before` is row `n` of `last`.
///
/// # Errors
/// If there is no such row.
pub fn is_same(before: &RecordBatch, last: &RecordBatch, positions: &UInt64Array, column: usize) -> Result<bool> {
    let before = take(before.column(column), positions, None)?;
    let [before, last] = compared([&before, last.column(column)].map(|values| vec![Arc::clone(values)]))?;
    Ok(before.iter().eq(last.iter()))
}

/// Returns the values of some columns of two relations, row by row.
fn values(relations: [&RecordBatch; 2], columns: &[usize]) -> Result<[Rows; 2]> {
    compared(relations.map(|rows| match columns {
        // Rows without columns are all the same.
        [] => vec![Arc::new(BooleanArray::from(vec![true; rows.num_rows()])) as ArrayRef],
        columns => columns.iter().map(|index| Arc::clone(rows.column(*index))).collect(),
    }))
}

fn compared([one, other]: [Vec<ArrayRef>; 2]) -> Result<[Rows; 2]> {
    let fields = one.iter().map(|values| SortField::new(values.data_type().clone())).collect();
    let converter = RowConverter::new(fields)?;
    Ok([converter.convert_columns(&one)?, converter.convert_columns(&other)?])
}

fn sorted(rows: &Rows) -> Vec<&[u8]> {
    let mut all: Vec<_> = (0..rows.num_rows()).map(|row| rows.row(row).data()).collect();
    all.sort_unstable();
    all
}

/// Inverts a permutation of rows.
///
/// # Errors
/// If a row is none.
pub fn inverse(positions: &UInt64Array) -> Result<UInt64Array> {
    let mut inverse = vec![0; positions.len()];
    for (row, position) in positions.values().iter().enumerate() {
        let at = inverse
            .get_mut(*position as usize)
            .ok_or_else(|| internal_datafusion_err!("there is no row {position}"))?;
        *at = row as u64;
    }
    Ok(inverse.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Float64Array, Int64Array, StringArray};
    use arrow::datatypes::{DataType, Field};

    fn rows(step: i64, keys: Vec<&str>, values: Vec<Option<f64>>) -> Result<RecordBatch> {
        let fields = [("step", DataType::Int64), ("key", DataType::Utf8), ("value", DataType::Float64)];
        let fields = fields.map(|(name, data_type)| Field::new(name, data_type, true));
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from(vec![step; keys.len()])),
            Arc::new(StringArray::from(keys)),
            Arc::new(Float64Array::from(values)),
        ];
        Ok(RecordBatch::try_new(Arc::new(Schema::new(fields.to_vec())), columns)?)
    }

    #[test]
    fn rows_are_found_by_what_does_not_change() -> Result<()> {
        let before = rows(4, vec!["a", "b", "c"], vec![Some(1.0), None, Some(0.0)])?;
        let last = rows(5, vec!["c", "a", "b"], vec![Some(-0.0), Some(1.0), None])?;
        let Compared { equal, counting, other } = Compared::try_new(&before, &last)?;
        assert_eq!((equal, counting, other), (vec![1], vec![0], vec![2]));
        let found = positions(&last, &before, &[1])?.expect("they are the same");
        assert_eq!(found.values(), &[2, 0, 1]);
        assert_eq!(inverse(&found)?.values(), &[1, 2, 0]);
        // The sign of a zero is a difference.
        assert!(is_same(&before, &last, &found, 1)? && !is_same(&before, &last, &found, 2)?);
        Ok(())
    }

    #[test]
    fn rows_that_are_none_or_several() -> Result<()> {
        let one = rows(1, vec!["a", "b"], vec![Some(1.0), Some(2.0)])?;
        let other = rows(1, vec!["a", "a"], vec![Some(1.0), Some(2.0)])?;
        assert_eq!(positions(&one, &other, &[1])?, Err(Unmatched::Twice));
        assert_eq!(positions(&other, &one, &[1])?, Err(Unmatched::Twice));
        assert_eq!(positions(&one, &other, &[1, 2])?, Err(Unmatched::Missing));
        assert_eq!(positions(&one, &one, &[])?, Err(Unmatched::Twice));
        let single = one.slice(0, 1);
        assert_eq!(positions(&single, &single, &[])?.map(|found| found.value(0)), Ok(0));
        assert_eq!(positions(&single, &one, &[1])?, Err(Unmatched::Missing));
        Ok(())
    }
}
