//! Random numbers, the same in every run unless `XQL_FFI_TEST_SEED` sets another seed; `random` draws one.

use std::time::{SystemTime, UNIX_EPOCH};

/// A generator of random numbers (SplitMix64).
pub struct Draw(u64);

impl Draw {
    /// Creates the generator of a run and prints its seed, which a failing test shows.
    pub fn from_env() -> Self {
        let seed = match std::env::var("XQL_FFI_TEST_SEED").as_deref() {
            Ok("random") => SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64),
            Ok(seed) => seed.parse().expect("a number"),
            Err(_) => 2026,
        };
        println!("XQL_FFI_TEST_SEED={seed}");
        Self(seed)
    }

    /// Returns the next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below another one.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// Returns a number from 0 to 1.
    pub fn unit(&mut self) -> f64 {
        self.next() as f64 / u64::MAX as f64
    }

    /// Returns true in so many of a hundred calls.
    pub fn percent(&mut self, times: usize) -> bool {
        self.below(100) < times
    }

    /// Returns one of several values.
    pub fn pick<'t, T>(&mut self, all: &'t [T]) -> &'t T {
        &all[self.below(all.len())]
    }
}
