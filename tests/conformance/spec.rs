//! Specs that a case finds in the Lease, and what must hold of those that tenure writes.

use std::time::Duration;

use serde_json::{Value, json};
use tenure::{clock, time::Instant};

use crate::support::{proxy::log::Exchange, stage::timing};

/// The wall clock, this many seconds later, as the API writes times.
pub fn time(seconds: i64) -> String {
    let micros = clock::wall() + seconds * 1_000_000;
    format!("{:.6}", jiff::Timestamp::from_microsecond(micros).expect("a time"))
}

/// Held by somebody since just now, for so many seconds.
pub fn held(holder: &str, seconds: i64) -> Value {
    json!({
        "holderIdentity": holder, "leaseDurationSeconds": seconds, "leaseTransitions": 3,
        "acquireTime": time(0), "renewTime": time(0),
    })
}

/// The shape of a release.
pub fn released() -> Value {
    let now = time(0);
    json!({ "holderIdentity": "", "leaseDurationSeconds": 1, "leaseTransitions": 3, "acquireTime": now, "renewTime": now })
}

/// How long a follower waits for a record of so many seconds, at least.
pub fn wait(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds * 1.01)
}

/// E of a write that was sent at `sent`.
pub fn end(sent: Instant) -> Instant {
    sent + Duration::from_secs_f64(timing::DURATION.as_secs_f64() * 0.99)
}

/// H of a write that was sent at `sent`.
pub fn hard(sent: Instant) -> Instant {
    end(sent) - timing::KILL_MARGIN
}

/// S of a write that was sent at `sent`.
pub fn soft(sent: Instant) -> Instant {
    hard(sent) - timing::LOSS_GRACE
}

/// Whether the replica `name` stands there as the holder: its name, "_" and 128 random bits.
pub fn is_held_by(spec: &Value, name: &str) -> bool {
    let holder = spec["holderIdentity"].as_str().unwrap_or_default();
    let nonce = holder.strip_prefix(name).and_then(|rest| rest.strip_prefix('_')).unwrap_or_default();
    nonce.len() == 32 && nonce.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// # Panics
/// Unless `write` carries what every held record must, for the replica `name` in this transition.
pub fn assert_acquires(write: &Exchange, name: &str, transitions: i64) {
    let spec = write.request.spec();
    assert!(is_held_by(spec, name), "{spec}");
    assert_eq!(spec["leaseTransitions"], transitions, "{spec}");
    assert_eq!(spec["acquireTime"], spec["renewTime"], "{spec}");
    assert!(spec["leaseDurationSeconds"].as_i64().is_some_and(|seconds| seconds >= 1), "{spec}");
    let time = spec["renewTime"].as_str().expect("a time");
    let digits = time.split_once('.').and_then(|(_, rest)| rest.strip_suffix('Z')).expect("a fraction, and Zulu time");
    assert!(digits.len() == 6 && digits.bytes().all(|byte| byte.is_ascii_digit()), "{time}");
}

/// # Panics
/// Unless `write` is a compare-and-swap on this object.
pub fn assert_on_version(write: &Exchange, object: &Value) {
    for field in ["uid", "resourceVersion"] {
        assert_eq!(write.request.body["metadata"][field], object["metadata"][field], "{field}");
    }
}
