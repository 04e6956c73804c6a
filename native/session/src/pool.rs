//! The memory pool of a plan that runs here: that of the session of the host.

use datafusion::common::{DataFusionError, Result, resources_datafusion_err};
use datafusion::execution::memory_pool::{MemoryPool, MemoryReservation, human_readable_size};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::host_memory::{HostMemory, HostReservation};

/// A pool that has what a session lends.
pub struct HostPool {
    memory: HostMemory,
    account: Mutex<Account>,
}

/// What has been lent, and what is used of it.
#[derive(Default)]
struct Account {
    used: usize,
    reserved: usize,
    /// What has been lent, unless the session lends without a limit.
    reservations: Vec<HostReservation>,
    /// How much is asked for at once, if less is needed. It is none before the session has been asked for anything.
    step: Option<usize>,
}

/// More than a session lends, unless it has no limit.
const UNLIMITED_PROBE: usize = 1 << 56;

/// The first step, with which most statements have enough. It is also what the pool keeps at most of what it does not use.
const FIRST_STEP: usize = 1 << 20;

/// The smallest step.
const MIN_STEP: usize = 4 << 10;

impl Account {
    /// Sees to it that there is so much memory more than is used.
    fn ensure_available(&mut self, additional: usize, memory: &HostMemory) -> Result<()> {
        let needed = self.used.saturating_add(additional).saturating_sub(self.reserved);
        if needed == 0 {
            return Ok(());
        }
        let mut step = match self.step {
            Some(step) => step,
            None if memory.reserve(UNLIMITED_PROBE).is_ok() => {
                self.reserved = usize::MAX;
                return Ok(());
            }
            None => FIRST_STEP,
        };
        loop {
            let size = step.max(needed);
            let reservation = memory.reserve(size);
            match reservation {
                Ok(reservation) => {
                    self.reserved += size;
                    self.reservations.push(reservation);
                    // Loans are few, and what the session lends in vain is a fifth at most.
                    self.step = Some((step * 2).clamp(MIN_STEP, FIRST_STEP.max(self.reserved / 4)));
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

    /// Gives back what is not used, but for a little: a node that takes as much again does not ask the session each time.
    fn release_unused(&mut self) {
        let target = self.used + self.step.unwrap_or_default().min(FIRST_STEP);
        while let Some(reservation) = self.reservations.pop_if(|reservation| self.reserved - reservation.size >= target)
        {
            self.reserved -= reservation.size;
        }
    }
}

impl HostPool {
    /// A pool with what this one lends.
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
        // Whoever asks like this takes the memory anyway. What is then missing, the next one has to get as well.
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

/// The error of a node that has not got memory, by which a node knows that it is to spill.
fn allocation_error(error: &DataFusionError, reservation: &MemoryReservation, additional: usize) -> DataFusionError {
    let error = error.strip_backtrace();
    if !error.contains("Resources exhausted") {
        return DataFusionError::Ffi(error);
    }
    // What the session says of the node that has asked it is not about the node that needs the memory.
    let reason = error.rsplit(" - ").next().unwrap_or_default();
    resources_datafusion_err!(
        "Failed to allocate additional {} for {} with {} already allocated for this reservation - {reason}",
        human_readable_size(additional),
        reservation.consumer().name(),
        human_readable_size(reservation.size())
    )
}
