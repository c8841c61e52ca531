//! States are told apart by a digest of all that they hold.

use std::{
    hash::{Hash, Hasher},
    ops::Deref,
    sync::Arc,
};

/// An odd number without a pattern.
const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

/// The digest of all that `value` holds.
pub fn digest(value: &impl Hash) -> u64 {
    let mut digest = Digest(ODD);
    value.hash(&mut digest);
    digest.0
}

/// Multiplies to 128 bits and folds. Most of the time of a run is spent here, so that each word is taken in by one call.
struct Digest(u64);

impl Digest {
    #[allow(clippy::manual_rotate, clippy::cast_possible_truncation, reason = "a call is dear where nothing is inlined")]
    const fn take(&mut self, word: u64) {
        let state = self.0;
        let wide = (state ^ word) as u128 * (ODD ^ (state << 29 | state >> 35)) as u128;
        self.0 = wide as u64 ^ (wide >> 64) as u64;
    }
}

#[allow(clippy::cast_sign_loss, reason = "only the bits count")]
impl Hasher for Digest {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks();
        let mut at = 0;
        while at < words.len() {
            self.take(u64::from_le_bytes(words[at]));
            at += 1;
        }
        if !rest.is_empty() {
            self.take(rest.iter().fold(0, |rest, byte| rest << 8 | u64::from(*byte)));
        }
    }

    fn write_u8(&mut self, number: u8) {
        self.take(number as u64);
    }

    fn write_u32(&mut self, number: u32) {
        self.take(number as u64);
    }

    fn write_u64(&mut self, number: u64) {
        self.take(number);
    }

    fn write_usize(&mut self, number: usize) {
        self.take(number as u64);
    }

    fn write_i32(&mut self, number: i32) {
        self.take(number as u64);
    }

    fn write_i64(&mut self, number: i64) {
        self.take(number as u64);
    }

    fn write_isize(&mut self, number: isize) {
        self.take(number as u64);
    }
}

/// Beside the state: two states that differ in this alone are one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Aside<T>(pub T);

impl<T> Hash for Aside<T> {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

/// A part of the state that most steps do not change: shared between states, with its digest.
#[derive(Clone, Debug)]
pub struct Sealed<T>(Arc<(T, u64)>);

impl<T: Hash> Sealed<T> {
    pub fn new(value: T) -> Self {
        let digest = digest(&value);
        Self(Arc::new((value, digest)))
    }
}

impl<T: Clone + Hash> Sealed<T> {
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

impl<T> Hash for Sealed<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0.1);
    }
}
