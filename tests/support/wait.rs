//! Waits for what no event announces: polls, with a deadline. [`until`] and [`found`] are for tests in a runtime.

use std::time::Duration;

use super::{PATIENCE, within};

/// Polls until `ready` is true.
pub fn wait_until(what: &str, mut ready: impl FnMut() -> bool) {
    wait_for(what, || ready().then_some(()));
}

/// Polls until `look` finds something.
pub fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let give_up = tenure::clock::boot() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(tenure::clock::boot() < give_up, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Polls until `is_so` is true.
pub async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    found(what, async || is_so().await.then_some(())).await;
}

/// Polls until `look` finds something.
pub async fn found<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    within(PATIENCE, what, async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await
}
