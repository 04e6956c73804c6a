//! The memory pool of a plan that runs in this library: it reserves memory of the host.

use datafusion::common::{DataFusionError, Result, resources_datafusion_err};
use datafusion::execution::memory_pool::{MemoryPool, MemoryReservation, human_readable_size};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::host_memory::{HostMemory, HostReservation};

/// A pool backed by the host's session.
pub struct HostPool {
    memory: HostMemory,
    account: Mutex<Account>,
}

/// What is reserved in the host, and what is used of it.
#[derive(Default)]
struct Account {
    used: usize,
    granted: usize,
    /// The reservations, unless the host has no limit.
    reservations: Vec<HostReservation>,
    /// The size of the next reservation, if less is needed. `None` before the first.
    step: Option<usize>,
}

/// More than any session has, unless its pool has no limit.
const UNLIMITED_PROBE: usize = 1 << 56;

/// The first step, enough for most statements. The pool keeps at most this much unused.
const FIRST_STEP: usize = 1 << 20;

/// The smallest step.
const MIN_STEP: usize = 4 << 10;

impl Account {
    /// Reserves memory until `additional` bytes are available.
    fn ensure_available(&mut self, additional: usize, memory: &HostMemory) -> Result<()> {
        let needed = self.used.saturating_add(additional).saturating_sub(self.granted);
        if needed == 0 {
            return Ok(());
        }
        let mut step = match self.step {
            Some(step) => step,
            None if memory.reserve(UNLIMITED_PROBE).is_ok() => {
                self.granted = usize::MAX;
                return Ok(());
            }
            None => FIRST_STEP,
        };
        loop {
            let size = step.max(needed);
            let reservation = memory.reserve(size);
            match reservation {
                Ok(reservation) => {
                    self.granted += size;
                    self.reservations.push(reservation);
                    // Reservations grow geometrically, so they are few, and at most a fifth is reserved in vain.
                    self.step = Some((step * 2).clamp(MIN_STEP, FIRST_STEP.max(self.granted / 4)));
                    return Ok(());
                }
                Err(error) if size == needed => {
                    self.step = Some(step);
                    return Err(error);
                }
                Err(_) => step /= 4,
            }
        }
    }

    /// Releases reservations that are not used, but for a little, so that a node that takes as much again needs no reservation.
    fn release_unused(&mut self) {
        let target = self.used + self.step.unwrap_or_default().min(FIRST_STEP);
        while let Some(reservation) = self.reservations.pop_if(|reservation| self.granted - reservation.size >= target)
        {
            self.granted -= reservation.size;
        }
    }
}

impl HostPool {
    /// Creates a pool that reserves memory of the host.
    pub fn new(memory: HostMemory) -> Self {
        Self { memory, account: Mutex::default() }
    }

    fn account(&self) -> MutexGuard<'_, Account> {
        self.account.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for HostPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostPool").field("memory", &self.memory).finish_non_exhaustive()
    }
}

impl fmt::Display for HostPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let account = self.account();
        write!(f, "{}(used: {})", self.name(), human_readable_size(account.used))
    }
}

impl MemoryPool for HostPool {
    fn name(&self) -> &str {
        "xql_ffi"
    }

    fn grow(&self, _reservation: &MemoryReservation, additional: usize) {
        let mut account = self.account();
        // `grow` cannot fail. Memory that it could not reserve is added to the next request.
        let _ = account.ensure_available(additional, &self.memory);
        account.used += additional;
    }

    fn shrink(&self, _reservation: &MemoryReservation, shrink: usize) {
        let mut account = self.account();
        account.used -= shrink;
        account.release_unused();
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        let mut account = self.account();
        account
            .ensure_available(additional, &self.memory)
            .map_err(|error| allocation_error(&error, reservation, additional))?;
        account.used += additional;
        Ok(())
    }

    fn reserved(&self) -> usize {
        self.account().used
    }
}

/// Converts the error of a reservation to the one by which a node knows that it has to spill.
fn allocation_error(error: &DataFusionError, reservation: &MemoryReservation, additional: usize) -> DataFusionError {
    let error = error.strip_backtrace();
    if !error.contains("Resources exhausted") {
        return DataFusionError::Ffi(error);
    }
    // The host's message names the node that has reserved the memory, not the one that needs it.
    let reason = error.rsplit(" - ").next().unwrap_or_default();
    resources_datafusion_err!(
        "Failed to allocate additional {} for {} with {} already allocated for this reservation - {reason}",
        human_readable_size(additional),
        reservation.consumer().name(),
        human_readable_size(reservation.size())
    )
}
