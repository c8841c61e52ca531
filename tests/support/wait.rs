//! Waits for what announces itself by no event: looks again and again, with a deadline.

use std::time::Duration;

/// Longest wait for anything that a test waits for.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Looks until it is so.
///
/// # Panics
/// If it is not so in time: with what was awaited.
pub(crate) fn wait_until(what: &str, mut ready: impl FnMut() -> bool) {
    wait_for(what, || ready().then_some(()));
}

/// Looks until there is something to be found.
///
/// # Panics
/// If it is not there in time: with what was awaited.
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
