//! What each thread allocates.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static NOW: Cell<usize> = const { Cell::new(0) };
    static PEAK: Cell<usize> = const { Cell::new(0) };
}

/// Counts the bytes that each thread holds: what it allocated less what it freed.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocated(bytes: usize) {
    let now = NOW.get().wrapping_add(bytes);
    NOW.set(now);
    // What is below zero was allocated by other threads.
    if now.cast_signed() > PEAK.get().cast_signed() {
        PEAK.set(now);
    }
}

fn freed(bytes: usize) {
    NOW.set(NOW.get().wrapping_sub(bytes));
}

// SAFETY: everything is done by the allocator of the system.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        allocated(layout.size());
        // SAFETY: as for this function.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        allocated(layout.size());
        // SAFETY: as for this function.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, data: *mut u8, layout: Layout) {
        freed(layout.size());
        // SAFETY: as for this function.
        unsafe { System.dealloc(data, layout) }
    }

    unsafe fn realloc(&self, data: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Both are there while one is copied to the other.
        allocated(size);
        freed(layout.size());
        // SAFETY: as for this function.
        unsafe { System.realloc(data, layout, size) }
    }
}

/// What some work left allocated on this thread, and the most that it held at once.
pub struct Held {
    pub left: isize,
    pub most: usize,
}

/// Runs `work`. What its result holds counts as left.
pub fn held<T>(work: impl FnOnce() -> T) -> (T, Held) {
    let before = NOW.get();
    PEAK.set(before);
    let outcome = work();
    let (left, most) = (NOW.get().wrapping_sub(before).cast_signed(), PEAK.get().wrapping_sub(before));
    (outcome, Held { left, most })
}

#[test]
fn what_is_left_is_counted() {
    let (_, held) = held(|| {
        drop(vec![0_u8; 1000]);
        let _: &'static [u8] = Vec::leak(vec![0_u8; 100]);
    });
    assert_eq!((held.left, held.most), (100, 1000));
}
