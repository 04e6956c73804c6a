//! Counts the places that compute a relation whose readers have to have the same draws.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The draws of a relation that all its readers have to have alike: in how many places they have been written out, beside those that scan it.
#[derive(Debug, Default)]
pub struct SharedDraws {
    written_out: AtomicUsize,
}

impl SharedDraws {
    /// Counts one more place that computes the relation for itself: a sweep through it, or what a derivative stands beside in FROM.
    pub fn write_out(&self) {
        self.written_out.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of these places.
    pub fn written_out(&self) -> usize {
        self.written_out.load(Ordering::Relaxed)
    }
}
