//! Positions that several sums have in common.
//!
//! The layers of a model are alike: the keys of a layer's rows are those of the next one's, and a sum has the keys of the sums that its
//! derivatives are. What each of them leaves to its next execution is one for all whose keys are the same.

use datafusion_common::Result;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};

use crate::compute::Rows;
use crate::digest::Digest;
use crate::places::Places;
use crate::spec::{Contraction, Kind};

/// What positions are of: the keys, and what each of them is for.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Keyed {
    kind: Kind,
    /// The inputs of each equality, and whether NULLs are equal.
    equalities: Vec<([usize; 2], bool)>,
    /// How many of the keys of each input are those of groups.
    groups: Vec<usize>,
    keys: Digest,
}

/// Those that are held by some sum.
#[derive(Debug, Default)]
struct Held {
    places: HashMap<Keyed, Weak<Places>>,
    /// With so many, those that nobody holds any longer are forgotten.
    full: usize,
}

static HELD: LazyLock<Mutex<Held>> = LazyLock::new(Mutex::default);

fn held() -> MutexGuard<'static, Held> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The positions of rows with these keys: those of another sum, if one holds them. None if a key has none.
///
/// # Errors
/// If keys cannot be compared.
pub fn places_of(spec: &Contraction, sides: &[Rows], keys: &Digest) -> Result<Option<Arc<Places>>> {
    let keyed = Keyed {
        kind: spec.kind,
        equalities: spec.equalities.iter().map(|equality| (equality.sides, equality.nulls)).collect(),
        groups: sides.iter().map(|side| side.groups.len()).collect(),
        keys: keys.clone(),
    };
    if let Some(places) = held().places.get(&keyed).and_then(Weak::upgrade) {
        return Ok(Some(places));
    }
    let Some(places) = Places::of(spec, sides)?.map(Arc::new) else { return Ok(None) };
    let mut held = held();
    if held.places.len() >= held.full {
        held.places.retain(|_, places| places.strong_count() > 0);
        held.full = 2 * held.places.len().max(256);
    }
    held.places.insert(keyed, Arc::downgrade(&places));
    Ok(Some(places))
}
