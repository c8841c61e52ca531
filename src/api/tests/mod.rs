//! Helpers for the tests of several rooms.

pub(crate) mod stub;
