//! How long the whole machine stood still, as this process felt it. On a busy or a virtual one that can be seconds, and no bound on
//! lateness holds through that.

use std::{
    sync::{Mutex, Once, PoisonError},
    thread,
    time::Duration,
};

use tenure::{clock, time::Instant};

/// How often it is felt.
const BEAT: Duration = Duration::from_millis(20);

/// Less is the scheduler's ordinary delay.
const NOTABLE: Duration = Duration::from_millis(100);

/// When each ended, and how long it took.
static STALLS: Mutex<Vec<(Instant, Duration)>> = Mutex::new(Vec::new());

/// Begins to feel for them, if that has not begun.
pub fn watch() {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| drop(thread::spawn(feel)));
}

fn feel() {
    loop {
        let before = clock::boot();
        thread::sleep(BEAT);
        let late = clock::boot().since(before).saturating_sub(BEAT);
        if late > NOTABLE {
            STALLS.lock().unwrap_or_else(PoisonError::into_inner).push((clock::boot(), late));
        }
    }
}

/// How long it stood still since `instant`.
pub fn since(instant: Instant) -> Duration {
    let stalls = STALLS.lock().unwrap_or_else(PoisonError::into_inner);
    stalls.iter().filter(|(end, _)| *end >= instant).map(|(_, late)| *late).sum()
}
