//! Join indexes that several sums share.
//!
//! The layers of a model are alike: the rows of one layer have the keys of the next one's rows, and a sum has the keys of its derivatives.
//! All sums with the same keys share one index, which lives as long as one of them caches it.

use datafusion_common::Result;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};

use crate::digest::KeyDigest;
use crate::inputs::InputRows;
use crate::join_index::JoinIndex;
use crate::spec::{ContractionSpec, GroupKind};

/// What an index depends on: the keys, and the role of each.
#[derive(Debug, PartialEq, Eq, Hash)]
struct IndexKey {
    kind: GroupKind,
    /// The inputs of each equality, and whether NULL equals NULL.
    equalities: Vec<([usize; 2], bool)>,
    /// The number of grouping keys of each input.
    groups: Vec<usize>,
    keys: KeyDigest,
}

/// The indexes that some sum holds.
#[derive(Debug, Default)]
struct IndexCache {
    indexes: HashMap<IndexKey, Weak<JoinIndex>>,
    /// At this size, indexes that no sum holds any longer are removed.
    capacity: usize,
}

static CACHE: LazyLock<Mutex<IndexCache>> = LazyLock::new(Mutex::default);

fn lock_cache() -> MutexGuard<'static, IndexCache> {
    CACHE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the index of keys: that of another sum if there is one, else a new one. Returns `None` if a key has no code.
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
