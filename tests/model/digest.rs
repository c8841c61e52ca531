//! States are identified by their `Debug` output, which shows everything that a machine holds.

use std::{fmt::Debug, ops::Deref, sync::Arc};

/// An odd number without a pattern.
const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

/// The digest of all that `value` holds.
pub fn digest(value: &impl Debug) -> u64 {
    // By the library's own `String`, which is optimised, as what is built here is not: most of the time of a run is spent in this.
    let text = format!("{value:?}");
    let (words, rest) = text.as_bytes().as_chunks();
    let (mut state, mut at) = (ODD, 0);
    while at < words.len() {
        state = mix(state, u64::from_le_bytes(words[at]));
        at += 1;
    }
    mix(state, rest.iter().fold(0, |rest, byte| rest << 8 | u64::from(*byte)))
}

/// Multiplied to 128 bits and folded.
#[allow(clippy::manual_rotate, clippy::cast_possible_truncation, reason = "a call is dear where nothing is inlined")]
const fn mix(state: u64, word: u64) -> u64 {
    let wide = (state ^ word) as u128 * (ODD ^ (state << 29 | state >> 35)) as u128;
    wide as u64 ^ (wide >> 64) as u64
}

/// A part of the state that most steps do not change: shared between states, with its digest.
#[derive(Clone)]
pub struct Sealed<T>(Arc<(T, u64)>);

impl<T: Debug> Sealed<T> {
    pub fn new(value: T) -> Self {
        let digest = digest(&value);
        Self(Arc::new((value, digest)))
    }
}

impl<T: Clone + Debug> Sealed<T> {
    /// Changes it for this state only.
    pub fn change<R>(&mut self, change: impl FnOnce(&mut T) -> R) -> R {
        let mut value = self.0.0.clone();
        let result = change(&mut value);
        *self = Self::new(value);
        result
    }
}

impl<T> Deref for Sealed<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.0
    }
}

/// Shows its digest only.
impl<T> Debug for Sealed<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:x}", self.0.1)
    }
}
