//! What tests of several rooms use.

pub(crate) mod stub;
