//! Consecutive numbers for pairs of integers.

use arrow::array::Int64Array;
use datafusion_common::HashMap;
use datafusion_execution::memory_pool::MemoryReservation;

/// The memory of a pair: its keys, and its entry in a hash table that is half full.
const BYTES_PER_PAIR: usize = size_of::<[i64; 2]>() + 2 * (size_of::<([i64; 2], u32)>() + 1);

/// The distinct pairs of two integer keys. The *slot* of a pair is its position among them.
///
/// There are far fewer of them than combinations of the keys: a sparse Jacobian has some entries in each row.
#[derive(Debug, Default)]
pub struct PairSlots {
    keys: [Vec<i64>; 2],
    slots: HashMap<[i64; 2], u32>,
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
        let slots = first.iter().zip(second).map(|(first, second)| {
            let next = self.slots.len() as u32;
            let slot = *self.slots.entry([*first, *second]).or_insert_with(|| {
                self.keys[0].push(*first);
                self.keys[1].push(*second);
                next
            });
            i64::from(slot)
        });
        Some(Int64Array::from_iter_values(slots))
    }
}
