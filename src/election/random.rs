//! The randomness of an election: jitter, and the ids of spans.
//!
//! Everything follows from the seed, so that a machine is as deterministic as its inputs.

use std::{
    hash::{Hash, Hasher},
    time::Duration,
};

/// Returns the FNV-1a hash of these bytes: what differs between replicas, and for one of them is always the same.
pub(crate) fn hash_of(bytes: impl Iterator<Item = u8>) -> u32 {
    bytes.fold(0x811C_9DC5, |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Random(fastrand::Rng);

impl Random {
    pub(crate) fn of(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    pub(crate) fn number(&mut self) -> u64 {
        self.0.u64(..)
    }

    /// Returns a number that is not 0.
    pub(crate) fn id(&mut self) -> u64 {
        self.0.u64(1..)
    }

    /// Returns some part of the span.
    pub(crate) fn part_of(&mut self, span: Duration) -> Duration {
        span.mul_f64(self.0.f64())
    }

    /// Returns the pause, longer or shorter by up to a quarter.
    pub(crate) fn around(&mut self, pause: Duration) -> Duration {
        pause.mul_f64(0.75 + self.0.f64() * 0.5)
    }
}

impl Hash for Random {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.get_seed().hash(state);
    }
}
