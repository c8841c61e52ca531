//! SIGINT and SIGTERM, for commands that run until they are told to end.

use std::{future::poll_fn, io, pin::Pin};

use futures_core::Stream as _;
use signal_hook_tokio::Signals;

/// Catches them from its creation on; needs a runtime.
pub(super) struct Interrupts(Signals);

impl Interrupts {
    /// # Errors
    /// The handlers cannot be installed.
    pub(super) fn catch() -> io::Result<Self> {
        Ok(Self(Signals::new([libc::SIGINT, libc::SIGTERM])?))
    }

    /// Waits for one.
    pub(super) async fn next(&mut self) {
        poll_fn(|context| Pin::new(&mut self.0).poll_next(context)).await;
    }
}
