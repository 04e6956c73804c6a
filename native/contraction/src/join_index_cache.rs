//! Positions that several sums have in common.
//!
//! The layers of a model are alike: the keys of a layer's rows are those of the next one's, and a sum has the keys of the sums that its
//! derivatives are. What each of them leaves to its next execution is one for all whose keys are the same.

use datafusion_common::Result;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};

use crate::digest::KeyDigest;
use crate::inputs::InputRows;
use crate::join_index::JoinIndex;
use crate::spec::{ContractionSpec, GroupKind};

/// What positions are of: the keys, and what each of them is for.
#[derive(Debug, PartialEq, Eq, Hash)]
struct IndexKey {
    kind: GroupKind,
    /// The inputs of each equality, and whether NULLs are equal.
    equalities: Vec<([usize; 2], bool)>,
    /// How many of the keys of each input are those of groups.
    groups: Vec<usize>,
    keys: KeyDigest,
}

/// Those that are held by some sum.
#[derive(Debug, Default)]
struct IndexCache {
    indexes: HashMap<IndexKey, Weak<JoinIndex>>,
    /// With so many, those that nobody holds any longer are forgotten.
    capacity: usize,
}

static CACHE: LazyLock<Mutex<IndexCache>> = LazyLock::new(Mutex::default);

fn lock_cache() -> MutexGuard<'static, IndexCache> {
    CACHE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The positions of rows with these keys: those of another sum, if one holds them. None if a key has none.
///
/// # Errors
/// If keys cannot be compared.
pub fn get_or_build(spec: &ContractionSpec, sides: &[InputRows], keys: &KeyDigest) -> Result<Option<Arc<JoinIndex>>> {
    let key = IndexKey {
        kind: spec.kind,
        equalities: spec.equalities.iter().map(|equality| (equality.sides, equality.nulls)).collect(),
        groups: sides.iter().map(|side| side.groups.len()).collect(),
        keys: keys.clone(),
    };
    if let Some(index) = lock_cache().indexes.get(&key).and_then(Weak::upgrade) {
        return Ok(Some(index));
    }
    let Some(index) = JoinIndex::try_new(spec, sides)?.map(Arc::new) else { return Ok(None) };
    let mut cache = lock_cache();
    if cache.indexes.len() >= cache.capacity {
        cache.indexes.retain(|_, index| index.strong_count() > 0);
        cache.capacity = 2 * cache.indexes.len().max(256);
    }
    cache.indexes.insert(key, Arc::downgrade(&index));
    Ok(Some(index))
}
