//! Locks whose values stay valid after a panic.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Returns the value, whoever panicked while it was locked.
pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
