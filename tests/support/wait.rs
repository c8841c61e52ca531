//! Waits for what no event announces: polls, with a deadline.

use std::time::Duration;

/// Longest wait for anything that a test waits for.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Polls until `ready` is true.
///
/// # Panics
/// If it is not true in time, naming what was awaited.
pub(crate) fn wait_until(what: &str, mut ready: impl FnMut() -> bool) {
    wait_for(what, || ready().then_some(()));
}

/// Polls until `look` finds something.
///
/// # Panics
/// If it does not in time, naming what was awaited.
pub(crate) fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let give_up = tenure::clock::boot() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(tenure::clock::boot() < give_up, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
