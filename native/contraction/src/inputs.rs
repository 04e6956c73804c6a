//! The keys and factors of the inputs of a sum.

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

/// The keys and factors of the rows of one input.
pub struct InputRows {
    /// The number of rows.
    pub count: usize,
    /// The number of rows of each batch.
    lengths: Vec<usize>,
    /// The grouping keys in batches, each with its position among the columns of the result.
    pub groups: Vec<(usize, Vec<ArrayRef>)>,
    /// The join keys in batches, each with the index of its equality.
    on: Vec<(usize, Vec<ArrayRef>)>,
    /// The factor of each term. Equal factors are shared.
    pub factors: Vec<Arc<Factor>>,
}

impl InputRows {
    /// Evaluates keys and factors over the rows of an input. If the input is outer joined, the row of NULLs follows its last row.
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

    /// Iterates over the batches of all keys.
    pub fn all_keys(&self) -> impl Iterator<Item = &ArrayRef> {
        self.groups.iter().chain(&self.on).flat_map(|(_, values)| values)
    }

    /// Encodes the grouping keys. Returns `None` if they have no codes.
    pub fn encode_groups(&self) -> Result<Option<KeyCodes>> {
        let keys = self.groups.iter().map(|(_, values)| KeyColumn { values: values.clone(), nulls: true });
        KeyCodes::from_keys(&keys.collect::<Vec<_>>(), self.count)
    }

    /// Returns the grouping keys of each code, one row per code.
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

    /// Returns the same in batches. If each row is a group of its own, these are the batches of the input, without a copy.
    pub fn group_keys_by_batch(&self, codes: &KeyCodes) -> Result<Vec<Vec<(usize, ArrayRef)>>> {
        if self.groups.is_empty() || !codes.is_identity() {
            return Ok(vec![self.group_keys(codes)?]);
        }
        let part =
            |batch: usize| self.groups.iter().map(|(place, values)| (*place, Arc::clone(&values[batch]))).collect();
        Ok((0..self.lengths.len()).map(part).collect())
    }

    /// Takes the grouping keys of rows, each given by batch and row.
    fn take_keys(&self, rows_of_codes: &[(usize, usize)]) -> Result<Vec<(usize, ArrayRef)>> {
        let keys = self.groups.iter().map(|(position, values)| {
            let values: Vec<_> = values.iter().map(AsRef::as_ref).collect();
            Ok((*position, interleave(&values, rows_of_codes)?))
        });
        keys.collect()
    }
}

/// Evaluates an expression over batches.
fn evaluate_batches(expr: &Arc<dyn PhysicalExpr>, batches: &[RecordBatch]) -> Result<Vec<ArrayRef>> {
    batches.iter().map(|batch| expr.evaluate(batch)?.into_array(batch.num_rows())).collect()
}

/// Evaluates the factor of each term. Equal factors are shared.
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

/// Builds a factor from values: 1 wherever there is a value if the term counts.
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
    // Counted values may be of any type.
    values.resize(rows, 1.0);
    Ok(Factor { values, nulls })
}

/// Encodes the keys that join two inputs with common codes. Returns `None` if they have no codes.
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

/// Gives a code of its own to the last row of the second input, which has NULLs, and to the rows of the first that match nothing else.
fn extend_unmatched([mut of, mut by]: [KeyCodes; 2]) -> [KeyCodes; 2] {
    by.codes.pop();
    let has_partner = by.used_codes();
    let code = of.count as u32;
    let is_unmatched = |position: u32| position == NO_CODE || !has_partner[position as usize];
    of.codes.iter_mut().filter(|position| is_unmatched(**position)).for_each(|position| *position = code);
    by.codes.push(code);
    [of, by].map(|codes| KeyCodes { count: codes.count + 1, ..codes })
}

/// Renumbers the codes that both inputs have, and removes all others.
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
