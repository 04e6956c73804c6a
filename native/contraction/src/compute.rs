//! The rows of a sum, as they are computed from those of its inputs.

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::{cast, interleave};
use arrow::datatypes::{DataType, Float64Type};
use datafusion_common::Result;
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_expr::expressions::lit;
use std::sync::Arc;

use crate::entries::Factor;
use crate::evaluated::Together;
use crate::keys::{Key, NONE, Positions};
use crate::spec::{Contraction, Equality, Extension, Term};

/// The rows of an input, as far as a sum reads them.
pub struct Rows {
    /// How many there are.
    pub count: usize,
    /// How many each batch has.
    lengths: Vec<usize>,
    /// The keys of groups, each with its position among the columns of the result, in batches.
    pub groups: Vec<(usize, Vec<ArrayRef>)>,
    /// The keys by which it is joined, each with the number of the equality, in batches.
    on: Vec<(usize, Vec<ArrayRef>)>,
    /// The factors of each term. Those of several that are the same are one.
    pub factors: Vec<Arc<Factor>>,
}

impl Rows {
    /// The rows of an input, and behind them the row of NULLs that rows of another one meet.
    pub fn of(spec: &Contraction, side: usize, batches: &[RecordBatch]) -> Result<Self> {
        let nulls = spec.extension.iter().filter(|extension| extension.by == side).map(|extension| &extension.nulls);
        let batches = &batches.iter().chain(nulls).cloned().collect::<Vec<_>>();
        let lengths: Vec<_> = batches.iter().map(RecordBatch::num_rows).collect();
        let count = lengths.iter().sum();
        let of = &spec.sides[side];
        let groups = of.groups.iter().map(|(key, position)| Ok((*position, arrays(key, batches)?)));
        let groups = groups.collect::<Result<_>>()?;
        let on = spec.equalities.iter().enumerate();
        let on = on.filter_map(|(number, equality)| Some((number, equality.key_of(side)?)));
        let on = on.map(|(number, key)| Ok((number, arrays(key, batches)?))).collect::<Result<_>>()?;
        let factors = factors(&spec.terms, side, batches, count)?;
        Ok(Self { count, lengths, groups, on, factors })
    }

    /// All keys, in batches.
    pub fn all_keys(&self) -> impl Iterator<Item = &ArrayRef> {
        self.groups.iter().chain(&self.on).flat_map(|(_, values)| values)
    }

    /// The positions of the groups, none if there are not enough numbers.
    pub fn positions(&self) -> Result<Option<Positions>> {
        let keys = self.groups.iter().map(|(_, values)| Key { values: values.clone(), nulls: true });
        Positions::of(&keys.collect::<Vec<_>>(), self.count)
    }

    /// The keys of groups, one row for each of these positions.
    pub fn keys(&self, positions: &Positions) -> Result<Vec<(usize, ArrayRef)>> {
        let mut places = vec![(0, 0); positions.count];
        let mut rows = positions.of_rows.iter();
        for (batch, length) in self.lengths.iter().enumerate() {
            for (row, position) in rows.by_ref().take(*length).enumerate() {
                if *position != NONE {
                    places[*position as usize] = (batch, row);
                }
            }
        }
        self.at(&places)
    }

    /// The same in parts, those of the rows if each row is a group of its own.
    pub fn keys_in_parts(&self, positions: &Positions) -> Result<Vec<Vec<(usize, ArrayRef)>>> {
        if self.groups.is_empty() || !positions.are_rows() {
            return Ok(vec![self.keys(positions)?]);
        }
        let part =
            |batch: usize| self.groups.iter().map(|(place, values)| (*place, Arc::clone(&values[batch]))).collect();
        Ok((0..self.lengths.len()).map(part).collect())
    }

    /// The keys of groups at these places, by batch and row.
    fn at(&self, places: &[(usize, usize)]) -> Result<Vec<(usize, ArrayRef)>> {
        let keys = self.groups.iter().map(|(position, values)| {
            let values: Vec<_> = values.iter().map(AsRef::as_ref).collect();
            Ok((*position, interleave(&values, places)?))
        });
        keys.collect()
    }
}

/// The values of an expression, in batches.
fn arrays(expr: &Arc<dyn PhysicalExpr>, batches: &[RecordBatch]) -> Result<Vec<ArrayRef>> {
    batches.iter().map(|batch| expr.evaluate(batch)?.into_array(batch.num_rows())).collect()
}

/// The factors that an input has, by term. Those of several that are the same are one.
fn factors(terms: &[Term], side: usize, batches: &[RecordBatch], rows: usize) -> Result<Vec<Arc<Factor>>> {
    let mut exprs: Vec<Arc<dyn PhysicalExpr>> = vec![];
    let of_terms = terms.iter().map(|term| {
        let expr = term.factors[side].clone().unwrap_or_else(|| lit(1.0));
        let number = exprs.iter().position(|other| other == &expr).unwrap_or_else(|| {
            exprs.push(expr);
            exprs.len() - 1
        });
        (number, term.counts)
    });
    let of_terms: Vec<_> = of_terms.collect();
    let together = Together::new(exprs, batches.first().map_or(0, RecordBatch::num_columns))?;
    let values = batches.iter().map(|batch| together.of(batch)).collect::<Result<Vec<_>>>()?;
    let mut factors: Vec<Arc<Factor>> = vec![];
    for of_term @ (number, counts) in &of_terms {
        let known = of_terms.iter().zip(&factors).find(|(other, _)| *other == of_term);
        let factor = match known {
            Some((_, factor)) => Arc::clone(factor),
            None => {
                let arrays: Vec<_> = values.iter().map(|values| &values[*number]).collect();
                Arc::new(factor(&arrays, *counts, rows)?)
            }
        };
        factors.push(factor);
    }
    Ok(factors)
}

/// A factor of these values, 1 wherever there is one if it counts.
fn factor(arrays: &[&ArrayRef], counts: bool, rows: usize) -> Result<Factor> {
    let mut values = Vec::with_capacity(rows);
    let has_nulls = arrays.iter().any(|array| array.null_count() > 0);
    let mut nulls = Vec::with_capacity(if has_nulls { rows } else { 0 });
    for array in arrays {
        if has_nulls {
            nulls.extend((0..array.len()).map(|row| array.is_null(row)));
        }
        if !counts {
            let array = cast(array, &DataType::Float64)?;
            values.extend_from_slice(array.as_primitive::<Float64Type>().values());
        }
    }
    // What is counted may be of any type.
    values.resize(rows, 1.0);
    Ok(Factor { values, nulls })
}

/// The positions of the keys by which two inputs are joined, by row of each. None if there are not enough numbers.
pub fn joined(spec: &Contraction, [left, right]: [usize; 2], sides: &[Rows]) -> Result<Option<[Positions; 2]>> {
    let [left_rows, right_rows] = [&sides[left], &sides[right]];
    let equalities = spec.equalities.iter().enumerate().filter(|(_, equality)| equality.is_of(left, right));
    let key = |(number, equality): (usize, &Equality)| {
        let of =
            |rows: &Rows| rows.on.iter().filter(|(of, _)| *of == number).flat_map(|(_, key)| key.clone()).collect();
        let values: [Vec<_>; 2] = [left_rows, right_rows].map(of);
        Key { values: values.concat(), nulls: equality.nulls }
    };
    let keys: Vec<_> = equalities.map(key).collect();
    let Some(mut both) = Positions::of(&keys, left_rows.count + right_rows.count)? else { return Ok(None) };
    let second = both.of_rows.split_off(left_rows.count);
    let count = both.count;
    let second = Positions { of_rows: second, count };
    let [first, second] = match &spec.extension {
        Some(Extension { of, by, .. }) if [*of, *by] == [left, right] => extended([both, second]),
        Some(Extension { of, by, .. }) if [*by, *of] == [left, right] => {
            let [second, first] = extended([second, both]);
            [first, second]
        }
        _ => [both, second],
    };
    Ok(Some([first, second]))
}

/// The same, but that rows of the first without a partner meet the last row of the second, which has NULLs and no other partner.
fn extended([mut of, mut by]: [Positions; 2]) -> [Positions; 2] {
    by.of_rows.pop();
    let have_partners = by.has_rows();
    let place = of.count as u32;
    let is_alone = |position: u32| position == NONE || !have_partners[position as usize];
    of.of_rows.iter_mut().filter(|position| is_alone(**position)).for_each(|position| *position = place);
    by.of_rows.push(place);
    [of, by].map(|positions| Positions { count: positions.count + 1, ..positions })
}

/// The same positions, but for those that only one of the two has.
pub fn in_common([left, right]: [Positions; 2]) -> [Positions; 2] {
    let mut count = 0;
    let numbers = left.has_rows().into_iter().zip(right.has_rows()).map(|(in_left, in_right)| {
        let both = in_left && in_right;
        count += u32::from(both);
        if both { count - 1 } else { NONE }
    });
    let numbers: Vec<_> = numbers.collect();
    if count as usize == numbers.len() {
        return [left, right];
    }
    let number = |position: u32| if position == NONE { NONE } else { numbers[position as usize] };
    [left, right].map(|positions| Positions {
        of_rows: positions.of_rows.into_iter().map(number).collect(),
        count: count as usize,
    })
}
