//! Sums of cotangents of rows, by the numbers of the rows.

use arrow::array::{ArrayRef, Float64Array, RecordBatch, UInt64Array};
use arrow::datatypes::SchemaRef;
use datafusion_common::cast::{as_float64_array, as_uint64_array};
use datafusion_common::{Result, internal_datafusion_err};
use std::sync::Arc;

/// Sums of cotangents of the rows of one relation. One that is NULL contributes nothing, and a sum of nothing is NULL.
#[derive(Debug, Clone)]
pub struct Sums {
    /// Whether there is a row of each number. The numbers are nearly dense.
    there: Vec<bool>,
    /// The sums by column and row.
    sums: Vec<Vec<Option<f64>>>,
}

impl Sums {
    /// Creates sums without rows, with so many columns.
    pub fn new(width: usize) -> Self {
        Self { there: vec![], sums: vec![vec![]; width] }
    }

    /// Returns whether nothing has been added.
    pub fn is_empty(&self) -> bool {
        self.there.is_empty()
    }

    /// Returns the bytes that it takes.
    pub fn size(&self) -> usize {
        self.there.capacity()
            + self.sums.iter().map(|column| column.capacity() * size_of::<Option<f64>>()).sum::<usize>()
    }

    /// Adds the cotangents of a batch. Column `numbers` numbers the rows, counted from `first`, and the columns after
    /// it have cotangents.
    pub fn add(&mut self, batch: &RecordBatch, numbers: usize, first: u64) -> Result<()> {
        let rows = as_uint64_array(batch.column(numbers))?;
        let positions: Vec<_> = rows.iter().map(|row| usize::try_from(row?.checked_sub(first)?).ok()).collect();
        let Some(last) = positions.iter().flatten().max() else { return Ok(()) };
        self.resize(last + 1);
        positions.iter().flatten().for_each(|row| self.there[*row] = true);
        for (sums, column) in self.sums.iter_mut().zip(&batch.columns()[numbers + 1..]) {
            for (row, cotangent) in positions.iter().zip(as_float64_array(column)?) {
                if let (Some(row), Some(cotangent)) = (row, cotangent) {
                    sums[*row] = Some(sums[*row].unwrap_or_default() + cotangent);
                }
            }
        }
        Ok(())
    }

    /// Returns the largest size of each column, NaN if one is NaN.
    pub fn largest(&self) -> Vec<f64> {
        // `f64::max` would leave a NaN out.
        let larger = |largest: f64, sum: &f64| if sum.abs() > largest || sum.is_nan() { sum.abs() } else { largest };
        self.sums.iter().map(|sums| sums.iter().flatten().fold(0.0, larger)).collect()
    }

    /// Clears the columns that are not kept.
    pub fn only(mut self, is_kept: impl Fn(usize) -> bool) -> Self {
        for (_, sums) in self.sums.iter_mut().enumerate().filter(|(column, _)| !is_kept(*column)) {
            sums.fill(None);
        }
        self
    }

    /// Moves the sums of row `n` to row `to[n]`.
    pub fn moved(&self, to: &UInt64Array) -> Result<Self> {
        let mut moved = Self::new(self.sums.len());
        moved.resize(to.len());
        for row in (0..self.there.len()).filter(|row| self.there[*row]) {
            let at = to.values().get(row).and_then(|at| usize::try_from(*at).ok()).filter(|at| *at < to.len());
            let at = at.ok_or_else(|| internal_datafusion_err!("there is no row {row}"))?;
            moved.there[at] = true;
            moved.sums.iter_mut().zip(&self.sums).for_each(|(moved, sums)| moved[at] = sums[row]);
        }
        Ok(moved)
    }

    /// Adds the sums of others.
    pub fn add_all(&mut self, others: &Self) {
        self.resize(others.there.len());
        self.there.iter_mut().zip(&others.there).for_each(|(there, also)| *there |= also);
        for (sums, others) in self.sums.iter_mut().zip(&others.sums) {
            for (sum, other) in sums.iter_mut().zip(others) {
                *sum = match (*sum, *other) {
                    (Some(sum), Some(other)) => Some(sum + other),
                    (sum, other) => sum.or(other),
                };
            }
        }
    }

    /// Returns whether all sums are the same to the last bit, if none is 0.
    pub fn is_same(&self, other: &Self) -> bool {
        let rows = self.there.len().max(other.there.len());
        let sum = |sums: &[Option<f64>], row: usize| sums.get(row).copied().flatten().unwrap_or_default();
        let is_same = |(sums, others): (&Vec<_>, &Vec<_>)| (0..rows).all(|row| sum(sums, row) == sum(others, row));
        self.sums.iter().zip(&other.sums).all(is_same)
    }

    /// Makes room for so many rows.
    fn resize(&mut self, rows: usize) {
        if self.there.len() < rows {
            self.there.resize(rows, false);
            self.sums.iter_mut().for_each(|sums| sums.resize(rows, None));
        }
    }

    /// Returns the rows that are there under the names that `named` gives them, behind columns that have the same value in all of them.
    pub fn batch(&self, schema: &SchemaRef, before: Option<u64>, named: Option<&UInt64Array>) -> Result<RecordBatch> {
        let rows: Vec<_> = (0..self.there.len()).filter(|row| self.there[*row]).collect();
        let mut columns: Vec<ArrayRef> = vec![];
        if let Some(value) = before {
            columns.push(Arc::new(UInt64Array::from(vec![value; rows.len()])));
        }
        let name = |row: &usize| match named {
            Some(named) if *row >= named.len() => Err(internal_datafusion_err!("there is no row {row}")),
            Some(named) => Ok(named.value(*row)),
            None => Ok(*row as u64),
        };
        let names = rows.iter().map(name).collect::<Result<Vec<_>>>()?;
        columns.push(Arc::new(UInt64Array::from(names)));
        for sums in &self.sums {
            columns.push(Arc::new(rows.iter().map(|row| sums[*row]).collect::<Float64Array>()));
        }
        Ok(RecordBatch::try_new(Arc::clone(schema), columns)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::AsArray;
    use arrow::datatypes::{DataType, Field, Float64Type, Schema, UInt64Type};

    fn schema(names: &[&str]) -> SchemaRef {
        let field = |name: &&str| match *name {
            "c" => Field::new("c", DataType::Float64, true),
            name => Field::new(name, DataType::UInt64, true),
        };
        Arc::new(Schema::new(names.iter().map(field).collect::<Vec<_>>()))
    }

    #[test]
    fn rows_are_summed_by_their_numbers() -> Result<()> {
        let rows = UInt64Array::from(vec![Some(7), Some(5), None, Some(7), Some(4), Some(8)]);
        let cotangents = Float64Array::from(vec![Some(1.0), None, Some(9.0), Some(2.0), Some(9.0), Some(-1.0)]);
        let batch = RecordBatch::try_new(schema(&["row", "c"]), vec![Arc::new(rows), Arc::new(cotangents)])?;
        let mut sums = Sums::new(1);
        assert!(sums.is_empty());
        // Row 4 stands before the first, and a row without a number is none.
        sums.add(&batch, 0, 5)?;
        let size = sums.size();
        assert!(!sums.is_empty() && size >= 4 * 17, "{size}");
        let names = UInt64Array::from(vec![50, 60, 70, 80]);
        let found = sums.batch(&schema(&["to", "row", "c"]), Some(3), Some(&names))?;
        assert_eq!(found.column(0).as_primitive::<UInt64Type>().values(), &[3, 3, 3]);
        assert_eq!(found.column(1).as_primitive::<UInt64Type>().values(), &[50, 70, 80]);
        let values: Vec<_> = found.column(2).as_primitive::<Float64Type>().iter().collect();
        assert_eq!(values, [None, Some(3.0), Some(-1.0)]);
        let too_few = UInt64Array::from(vec![50]);
        assert!(sums.batch(&schema(&["row", "c"]), None, Some(&too_few)).is_err());
        Ok(())
    }

    #[test]
    fn sums_of_other_rows_and_columns() -> Result<()> {
        let of = |rows: Vec<u64>, sizes: Vec<Option<f64>>| -> Result<Sums> {
            let columns: Vec<ArrayRef> = vec![Arc::new(UInt64Array::from(rows)), Arc::new(Float64Array::from(sizes))];
            let mut sums = Sums::new(1);
            sums.add(&RecordBatch::try_new(schema(&["row", "c"]), columns)?, 0, 0)?;
            Ok(sums)
        };
        let mut sums = of(vec![0, 2], vec![Some(-3.0), Some(1.0)])?;
        assert_eq!(sums.largest(), [3.0]);
        assert!(sums.clone().only(|_| false).largest() == [0.0] && sums.clone().only(|_| true).is_same(&sums));
        assert!(of(vec![0], vec![Some(f64::NAN)])?.largest()[0].is_nan());
        let moved = sums.moved(&UInt64Array::from(vec![1, 0, 2]))?;
        assert!(moved.is_same(&of(vec![1, 2], vec![Some(-3.0), Some(1.0)])?) && !moved.is_same(&sums));
        assert!(sums.moved(&UInt64Array::from(vec![0, 1])).is_err());
        sums.add_all(&of(vec![2, 3], vec![Some(1.0), None])?);
        assert!(sums.is_same(&of(vec![0, 2], vec![Some(-3.0), Some(2.0)])?));
        Ok(())
    }
}
