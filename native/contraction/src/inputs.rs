//! The rows of a sum, as they are computed from those of its inputs.

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::{cast, interleave};
use arrow::datatypes::{DataType, Float64Type};
use datafusion_common::Result;
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_expr::expressions::lit;
use std::sync::Arc;

use crate::coo::Factor;
use crate::cse::SharedEval;
use crate::key_codes::{KeyCodes, KeyColumn, NO_CODE};
use crate::spec::{ContractionSpec, KeyEquality, NullExtension, Term};

/// The rows of an input, as far as a sum reads them.
pub struct InputRows {
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

impl InputRows {
    /// The rows of an input, and behind them the row of NULLs that rows of another one meet.
    pub fn try_new(spec: &ContractionSpec, side: usize, batches: &[RecordBatch]) -> Result<Self> {
        let nulls = spec.extension.iter().filter(|extension| extension.by == side).map(|extension| &extension.nulls);
        let batches = &batches.iter().chain(nulls).cloned().collect::<Vec<_>>();
        let lengths: Vec<_> = batches.iter().map(RecordBatch::num_rows).collect();
        let count = lengths.iter().sum();
        let input = &spec.sides[side];
        let groups = input.groups.iter().map(|(key, position)| Ok((*position, evaluate_batches(key, batches)?)));
        let groups = groups.collect::<Result<_>>()?;
        let on = spec.equalities.iter().enumerate();
        let on = on.filter_map(|(number, equality)| Some((number, equality.key_of(side)?)));
        let on = on.map(|(number, key)| Ok((number, evaluate_batches(key, batches)?))).collect::<Result<_>>()?;
        let factors = evaluate_factors(&spec.terms, side, batches, count)?;
        Ok(Self { count, lengths, groups, on, factors })
    }

    /// All keys, in batches.
    pub fn all_keys(&self) -> impl Iterator<Item = &ArrayRef> {
        self.groups.iter().chain(&self.on).flat_map(|(_, values)| values)
    }

    /// The positions of the groups, none if there are not enough numbers.
    pub fn encode_groups(&self) -> Result<Option<KeyCodes>> {
        let keys = self.groups.iter().map(|(_, values)| KeyColumn { values: values.clone(), nulls: true });
        KeyCodes::from_keys(&keys.collect::<Vec<_>>(), self.count)
    }

    /// The keys of groups, one row for each of these positions.
    pub fn group_keys(&self, codes: &KeyCodes) -> Result<Vec<(usize, ArrayRef)>> {
        let mut rows_of_codes = vec![(0, 0); codes.count];
        let mut rows = codes.codes.iter();
        for (batch, length) in self.lengths.iter().enumerate() {
            for (row, position) in rows.by_ref().take(*length).enumerate() {
                if *position != NO_CODE {
                    rows_of_codes[*position as usize] = (batch, row);
                }
            }
        }
        self.take_keys(&rows_of_codes)
    }

    /// The same in parts, those of the rows if each row is a group of its own.
    pub fn group_keys_by_batch(&self, codes: &KeyCodes) -> Result<Vec<Vec<(usize, ArrayRef)>>> {
        if self.groups.is_empty() || !codes.is_identity() {
            return Ok(vec![self.group_keys(codes)?]);
        }
        let part =
            |batch: usize| self.groups.iter().map(|(place, values)| (*place, Arc::clone(&values[batch]))).collect();
        Ok((0..self.lengths.len()).map(part).collect())
    }

    /// The keys of groups at these places, by batch and row.
    fn take_keys(&self, rows_of_codes: &[(usize, usize)]) -> Result<Vec<(usize, ArrayRef)>> {
        let keys = self.groups.iter().map(|(position, values)| {
            let values: Vec<_> = values.iter().map(AsRef::as_ref).collect();
            Ok((*position, interleave(&values, rows_of_codes)?))
        });
        keys.collect()
    }
}

/// The values of an expression, in batches.
fn evaluate_batches(expr: &Arc<dyn PhysicalExpr>, batches: &[RecordBatch]) -> Result<Vec<ArrayRef>> {
    batches.iter().map(|batch| expr.evaluate(batch)?.into_array(batch.num_rows())).collect()
}

/// The factors that an input has, by term. Those of several that are the same are one.
fn evaluate_factors(terms: &[Term], side: usize, batches: &[RecordBatch], rows: usize) -> Result<Vec<Arc<Factor>>> {
    let mut exprs: Vec<Arc<dyn PhysicalExpr>> = vec![];
    let by_term = terms.iter().map(|term| {
        let expr = term.factors[side].clone().unwrap_or_else(|| lit(1.0));
        let number = exprs.iter().position(|other| other == &expr).unwrap_or_else(|| {
            exprs.push(expr);
            exprs.len() - 1
        });
        (number, term.counts)
    });
    let by_term: Vec<_> = by_term.collect();
    let shared = SharedEval::try_new(exprs, batches.first().map_or(0, RecordBatch::num_columns))?;
    let values = batches.iter().map(|batch| shared.evaluate(batch)).collect::<Result<Vec<_>>>()?;
    let mut factors: Vec<Arc<Factor>> = vec![];
    for key @ (number, counts) in &by_term {
        let known = by_term.iter().zip(&factors).find(|(other, _)| *other == key);
        let factor = match known {
            Some((_, factor)) => Arc::clone(factor),
            None => {
                let arrays: Vec<_> = values.iter().map(|values| &values[*number]).collect();
                Arc::new(build_factor(&arrays, *counts, rows)?)
            }
        };
        factors.push(factor);
    }
    Ok(factors)
}

/// A factor of these values, 1 wherever there is one if it counts.
fn build_factor(arrays: &[&ArrayRef], counts: bool, rows: usize) -> Result<Factor> {
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
pub fn encode_join_keys(
    spec: &ContractionSpec,
    [left, right]: [usize; 2],
    sides: &[InputRows],
) -> Result<Option<[KeyCodes; 2]>> {
    let [left_rows, right_rows] = [&sides[left], &sides[right]];
    let equalities = spec.equalities.iter().enumerate().filter(|(_, equality)| equality.connects(left, right));
    let key = |(number, equality): (usize, &KeyEquality)| {
        let of = |rows: &InputRows| {
            rows.on.iter().filter(|(of, _)| *of == number).flat_map(|(_, key)| key.clone()).collect()
        };
        let values: [Vec<_>; 2] = [left_rows, right_rows].map(of);
        KeyColumn { values: values.concat(), nulls: equality.nulls }
    };
    let keys: Vec<_> = equalities.map(key).collect();
    let Some(mut both) = KeyCodes::from_keys(&keys, left_rows.count + right_rows.count)? else { return Ok(None) };
    let second = both.codes.split_off(left_rows.count);
    let count = both.count;
    let second = KeyCodes { codes: second, count };
    let [first, second] = match &spec.extension {
        Some(NullExtension { of, by, .. }) if [*of, *by] == [left, right] => extend_unmatched([both, second]),
        Some(NullExtension { of, by, .. }) if [*by, *of] == [left, right] => {
            let [second, first] = extend_unmatched([second, both]);
            [first, second]
        }
        _ => [both, second],
    };
    Ok(Some([first, second]))
}

/// The same, but that rows of the first without a partner meet the last row of the second, which has NULLs and no other partner.
fn extend_unmatched([mut of, mut by]: [KeyCodes; 2]) -> [KeyCodes; 2] {
    by.codes.pop();
    let has_partner = by.used_codes();
    let code = of.count as u32;
    let is_unmatched = |position: u32| position == NO_CODE || !has_partner[position as usize];
    of.codes.iter_mut().filter(|position| is_unmatched(**position)).for_each(|position| *position = code);
    by.codes.push(code);
    [of, by].map(|codes| KeyCodes { count: codes.count + 1, ..codes })
}

/// The same positions, but for those that only one of the two has.
pub fn intersect_codes([left, right]: [KeyCodes; 2]) -> [KeyCodes; 2] {
    let mut count = 0;
    let numbers = left.used_codes().into_iter().zip(right.used_codes()).map(|(in_left, in_right)| {
        let both = in_left && in_right;
        count += u32::from(both);
        if both { count - 1 } else { NO_CODE }
    });
    let numbers: Vec<_> = numbers.collect();
    if count as usize == numbers.len() {
        return [left, right];
    }
    let number = |position: u32| if position == NO_CODE { NO_CODE } else { numbers[position as usize] };
    [left, right].map(|codes| KeyCodes { codes: codes.codes.into_iter().map(number).collect(), count: count as usize })
}
