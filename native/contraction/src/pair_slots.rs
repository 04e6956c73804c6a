//! Consecutive numbers for pairs of integers.

use arrow::array::Int64Array;
use datafusion_execution::memory_pool::MemoryReservation;
use hashbrown::hash_table::Entry;
use hashbrown::{DefaultHashBuilder, HashTable};
use std::hash::BuildHasher;

/// The memory of a pair: its keys, and its entry in a hash table that is half full.
const BYTES_PER_PAIR: usize = size_of::<[i64; 2]>() + 2 * (size_of::<u32>() + 1);

/// The distinct pairs of two integer keys. The *slot* of a pair is its position among them.
///
/// There are far fewer of them than combinations of the keys: a sparse Jacobian has some entries in each row. The hash table has slots
/// alone, so that it fits into a cache; pairs that arrive together have their keys together.
#[derive(Debug, Default)]
pub struct PairSlots {
    keys: [Vec<i64>; 2],
    slots: HashTable<u32>,
    hasher: DefaultHashBuilder,
    /// The number of pairs that memory is reserved for.
    reserved: usize,
}

impl PairSlots {
    /// Returns the number of pairs.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns the keys of each pair.
    pub fn keys(&self) -> [&[i64]; 2] {
        self.keys.each_ref().map(Vec::as_slice)
    }

    /// Returns the slots of pairs, adding those that are new. Returns `None`, and adds nothing, if memory has run out.
    pub fn find_or_insert(&mut self, keys: [&[i64]; 2], reservation: &MemoryReservation) -> Option<Int64Array> {
        let [first, second] = keys;
        let most = self.len() + first.len();
        if most >= u32::MAX as usize {
            return None;
        }
        if most > self.reserved {
            let reserved = most.next_power_of_two();
            reservation.try_grow((reserved - self.reserved) * BYTES_PER_PAIR).ok()?;
            self.reserved = reserved;
        }
        let Self { keys: [firsts, seconds], slots, hasher, .. } = self;
        let found = first.iter().zip(second).map(|(first, second)| {
            let hash = hasher.hash_one([*first, *second]);
            let is_it = |slot: &u32| firsts[*slot as usize] == *first && seconds[*slot as usize] == *second;
            let hash_of = |slot: &u32| hasher.hash_one([firsts[*slot as usize], seconds[*slot as usize]]);
            match slots.entry(hash, is_it, hash_of) {
                Entry::Occupied(known) => i64::from(*known.get()),
                Entry::Vacant(free) => {
                    let slot = firsts.len() as u32;
                    free.insert(slot);
                    firsts.push(*first);
                    seconds.push(*second);
                    i64::from(slot)
                }
            }
        });
        Some(Int64Array::from_iter_values(found))
    }
}
