//! States are identified by their `Debug` output, which shows everything that a machine holds.

use std::{
    fmt::{Debug, Write},
    ops::Deref,
    sync::Arc,
};

/// An odd number without a pattern.
const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
/// The usual length of a text.
const USUAL: usize = 8_192;

/// The digest of all that `value` holds.
pub fn digest(value: &impl Debug) -> u64 {
    let mut text = String::with_capacity(USUAL);
    // Writing to a String cannot fail.
    let _ = write!(text, "{value:?}");
    let mut words = text.as_bytes().chunks_exact(8);
    let whole = words.by_ref().fold(ODD, mix);
    mix(whole, words.remainder())
}

/// Multiplied to 128 bits and folded; unoptimised, `SipHash` takes most of the time of a run.
fn mix(state: u64, word: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    bytes[..word.len()].copy_from_slice(word);
    let product = u128::from(state ^ u64::from_le_bytes(bytes)) * u128::from(ODD ^ state.rotate_left(29));
    let [low, high] = [product, product >> 64].map(|half| (half & u128::from(u64::MAX)) as u64);
    low ^ high
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
