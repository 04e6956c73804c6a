//! Digests of keys and factors, by which an execution recognizes those of the last one without holding them.

use arrow::array::{Array, ArrayRef, downcast_primitive_array};
use arrow::datatypes::DataType;
use datafusion_common::Result;
use datafusion_common::hash_utils::{RandomState, create_hashes};
use std::hash::{BuildHasher, Hasher};

use crate::coo::Factor;
use crate::inputs::InputRows;

/// The digest of the keys of all inputs. Equal digests mean equal keys: with 128 bits a chance collision can be ruled out.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct KeyDigest {
    /// The number of rows of each input, which may have no keys.
    counts: Vec<usize>,
    columns: Vec<ColumnDigest>,
}

/// The digest of one key of one batch.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct ColumnDigest {
    data_type: DataType,
    rows: usize,
    hashes: [u64; 2],
}

impl KeyDigest {
    /// Digests the keys of all inputs.
    ///
    /// # Errors
    /// If DataFusion cannot hash the type of a key.
    pub fn try_new(sides: &[InputRows]) -> Result<Self> {
        let columns = sides.iter().flat_map(InputRows::all_keys).map(ColumnDigest::try_new);
        Ok(Self { counts: sides.iter().map(|side| side.count).collect(), columns: columns.collect::<Result<_>>()? })
    }
}

impl ColumnDigest {
    fn try_new(values: &ArrayRef) -> Result<Self> {
        let [first, second] = SEEDS.map(|seed| hash_values(values, &RandomState::with_seed(seed)));
        Ok(Self { data_type: values.data_type().clone(), rows: values.len(), hashes: [first?, second?] })
    }
}

/// The digest of the bits of a factor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FactorDigest([u64; 2]);

impl FactorDigest {
    /// Digests a factor.
    pub fn new(factor: &Factor) -> Self {
        Self(SEEDS.map(|seed| {
            let mut hasher = RandomState::with_seed(seed).build_hasher();
            hasher.write_usize(factor.values.len());
            factor.values.iter().for_each(|value| hasher.write_u64(value.to_bits()));
            factor.nulls.iter().for_each(|is_null| hasher.write_u8(u8::from(*is_null)));
            hasher.finish()
        }))
    }
}

/// The seeds of two independent hashes.
const SEEDS: [u64; 2] = [0x9e37_79b9_7f4a_7c15, 0xc2b2_ae3d_27d4_eb4f];

/// Hashes values and their null mask. Floats are distinguished by their bits.
fn hash_values(values: &ArrayRef, state: &RandomState) -> Result<u64> {
    let mut hasher = state.build_hasher();
    if let Some(nulls) = values.nulls().filter(|nulls| nulls.null_count() > 0) {
        nulls.inner().bit_chunks().iter_padded().for_each(|chunk| hasher.write_u64(chunk));
    }
    downcast_primitive_array!(
        values => hasher.write(values.values().inner().as_slice()),
        _ => {
            let mut hashes = vec![0; values.len()];
            create_hashes([values], state, &mut hashes)?;
            hashes.into_iter().for_each(|hash| hasher.write_u64(hash));
        }
    );
    Ok(hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{BooleanArray, Float64Array, Int64Array, StringArray, StringViewArray};
    use std::sync::Arc;

    fn digest(values: impl Array + 'static) -> Result<ColumnDigest> {
        ColumnDigest::try_new(&(Arc::new(values) as ArrayRef))
    }

    #[test]
    fn equal_keys_have_one_digest_wherever_they_are() -> Result<()> {
        let numbers = Int64Array::from(vec![7, 1, 2, 3]);
        assert_eq!(digest(numbers.slice(1, 3))?, digest(Int64Array::from(vec![1, 2, 3]))?);
        assert_eq!(
            digest(StringArray::from(vec!["a", "b"]))?,
            digest(StringArray::from(vec!["c", "a", "b"]).slice(1, 2))?
        );
        let some = Int64Array::from(vec![Some(1), None, Some(3)]);
        assert_eq!(digest(some.clone())?, digest(Int64Array::from(vec![None, Some(1), None, Some(3)]).slice(1, 3))?);
        Ok(())
    }

    #[test]
    fn other_keys_have_another_digest() -> Result<()> {
        let columns = [
            digest(Int64Array::from(vec![1, 2]))?,
            digest(Int64Array::from(vec![2, 1]))?,
            digest(Int64Array::from(vec![1, 2, 0]))?,
            digest(Int64Array::from(vec![Some(1), None]))?,
            digest(Int64Array::from(vec![None, Some(2)]))?,
            digest(Float64Array::from(vec![0.0, 1.0]))?,
            digest(Float64Array::from(vec![-0.0, 1.0]))?,
            digest(StringArray::from(vec!["ab", "c"]))?,
            digest(StringArray::from(vec!["a", "bc"]))?,
            digest(StringViewArray::from(vec!["a", "bc"]))?,
            digest(BooleanArray::from(vec![true, false]))?,
            digest(BooleanArray::from(vec![false, true]))?,
        ];
        for (number, column) in columns.iter().enumerate() {
            assert_eq!(columns.iter().position(|other| other == column), Some(number));
        }
        Ok(())
    }
}
