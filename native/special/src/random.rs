//! Random numbers by seed and keys: the same in every row, plan and version that has these.

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, Int64Array};
use arrow::buffer::NullBuffer;
use arrow::datatypes::Int64Type;
use datafusion_common::{Result, exec_err};
use std::f64::consts::TAU;

use crate::philox::philox4x64;

/// How many keys there may be beside the seed: the words of a counter.
pub const MAX_KEYS: usize = 4;

/// A uniform number in [0, 1), which is a multiple of 2^-53.
pub fn uniform(words: [u64; 4]) -> f64 {
    unit(words[0])
}

/// A normal number of mean 0 and variance 1, by the transform of Box and Muller. Its words are not those of `uniform`, so that the two are
/// independent. `libm` has the same digits on all platforms.
pub fn normal(words: [u64; 4]) -> f64 {
    (-2.0 * libm::log(1.0 - unit(words[1]))).sqrt() * libm::cos(TAU * unit(words[2]))
}

/// The first 53 bits of a word as a number in [0, 1).
fn unit(word: u64) -> f64 {
    const STEP: f64 = 1.0 / (1_u64 << 53) as f64;
    (word >> 11) as f64 * STEP
}

/// Evaluates a function of random words in each row: those of the seed and the keys, which are the columns.
///
/// The seed and the number of keys are the key of the generator, the keys its counter. So other keys are other words for certain.
pub fn sample(columns: &[ArrayRef], of_words: fn([u64; 4]) -> f64) -> Result<Float64Array> {
    let columns = columns.iter().map(integers).collect::<Result<Vec<_>>>()?;
    let Some((seed, keys)) = columns.split_first() else { return exec_err!("a random number takes a seed") };
    let nulls = columns.iter().fold(None, |nulls, column| NullBuffer::union(nulls.as_ref(), column.nulls()));
    let values = (0..seed.len()).map(|row| {
        let mut counter = [0; MAX_KEYS];
        for (word, key) in counter.iter_mut().zip(keys) {
            *word = key.value(row).cast_unsigned();
        }
        of_words(philox4x64(counter, [seed.value(row).cast_unsigned(), keys.len() as u64]))
    });
    Ok(Float64Array::new(values.collect(), nulls))
}

fn integers(array: &ArrayRef) -> Result<&Int64Array> {
    match array.as_primitive_opt::<Int64Type>() {
        Some(integers) => Ok(integers),
        None => exec_err!("a random number takes Int64, not {}", array.data_type()),
    }
}
