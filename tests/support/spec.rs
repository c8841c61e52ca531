//! Specs that a case puts into the Lease, and what must hold of those that tenure writes.

use std::time::Duration;

use super::{Exchange, Prepared, timing};
use serde_json::{Value, json};
use tenure::{clock, election::writes::NOBODY, time::Instant};

/// The wall clock plus this many seconds, as the API writes times.
pub fn time(seconds: i64) -> String {
    let micros = clock::wall() + seconds * 1_000_000;
    format!("{:.6}", jiff::Timestamp::from_microsecond(micros).expect("a time"))
}

/// A spec with this holder since just now, for this many seconds.
pub fn held(holder: &str, seconds: i64) -> Value {
    json!({
        "holderIdentity": holder, "leaseDurationSeconds": seconds, "leaseTransitions": 3,
        "acquireTime": time(0), "renewTime": time(0),
    })
}

/// A spec with another value.
pub fn with(mut spec: Value, key: &str, value: impl Into<Value>) -> Value {
    spec[key] = value.into();
    spec
}

/// A released Lease's spec.
pub fn released() -> Value {
    let now = time(0);
    json!({ "holderIdentity": "", "leaseDurationSeconds": 1, "leaseTransitions": 3, "acquireTime": now, "renewTime": now })
}

/// How long a follower waits at least for a record of this many seconds.
pub fn wait(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds * 1.01)
}

/// The settings from which a term's deadlines follow.
#[derive(Clone, Copy)]
pub struct Spans {
    /// D.
    pub duration: Duration,
    /// G.
    pub loss_grace: Duration,
    /// k + w.
    pub kill_margin: Duration,
}

/// Spans of a replica unless a case sets others.
const SHORT: Spans = Spans { duration: timing::DURATION, loss_grace: timing::LOSS_GRACE, kill_margin: timing::KILL_MARGIN };

/// Set by [`Prepared::unhurried`].
pub const UNHURRIED: Spans =
    Spans { duration: Duration::from_secs(20), loss_grace: Duration::from_secs(4), kill_margin: Duration::from_secs(1) };

/// Set by [`calm`].
pub const CALM: Spans =
    Spans { duration: Duration::from_secs(10), loss_grace: Duration::from_secs(3), kill_margin: Duration::from_secs(1) };

impl Spans {
    /// E of a write that was sent at `sent`.
    pub fn end(self, sent: Instant) -> Instant {
        sent + Duration::from_secs_f64(self.duration.as_secs_f64() * 0.99)
    }

    /// H of a write that was sent at `sent`.
    pub fn hard(self, sent: Instant) -> Instant {
        self.end(sent).before(self.kill_margin)
    }

    /// S of a write that was sent at `sent`.
    pub fn soft(self, sent: Instant) -> Instant {
        self.hard(sent).before(self.loss_grace)
    }
}

/// Longer settings for cases that wait for S: the workload is told to stop in time even if the replica stalls for some seconds.
pub fn calm(prepared: Prepared) -> Prepared {
    let text = |span: Duration| format!("{}s", span.as_secs());
    prepared
        .set("lease.duration", text(CALM.duration))
        .set("lease.attemptTimeout", "1s")
        .set("workload.stop.lossGrace", text(CALM.loss_grace))
        .set("workload.stop.killMargin", text(CALM.kill_margin))
}

/// [`Spans::end`] with the usual settings.
pub fn end(sent: Instant) -> Instant {
    SHORT.end(sent)
}

/// [`Spans::soft`] with the usual settings.
pub fn soft(sent: Instant) -> Instant {
    SHORT.soft(sent)
}

/// Returns whether the replica `name` is the holder, as its name, "_" and 128 random bits.
pub fn is_held_by(spec: &Value, name: &str) -> bool {
    let holder = spec["holderIdentity"].as_str().unwrap_or_default();
    let nonce = holder.strip_prefix(name).and_then(|rest| rest.strip_prefix('_')).unwrap_or_default();
    nonce.len() == 32 && nonce.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// `write` has what every held record must have, for the replica `name` in this transition, which began after `since`.
pub fn assert_acquires(write: &Exchange, name: &str, transitions: i64, since: Instant) {
    let spec = write.request.spec();
    assert!(is_held_by(spec, name), "{spec}");
    assert_eq!(spec["leaseTransitions"], transitions, "{spec}");
    assert_eq!(spec["acquireTime"], spec["renewTime"], "{spec}");
    assert!(spec["leaseDurationSeconds"].as_i64().is_some_and(|seconds| seconds >= 1), "{spec}");
    let time = spec["renewTime"].as_str().expect("a time");
    let digits = time.split_once('.').and_then(|(_, rest)| rest.strip_suffix('Z')).expect("a fraction, and Zulu time");
    assert!(digits.len() == 6 && digits.bytes().all(|byte| byte.is_ascii_digit()), "{time}");
    assert!((wall(since)..=clock::wall()).contains(&micros(time)), "{time} is not now");
}

/// `write` is the one that lets nobody hold the Lease for this long.
pub fn assert_nobody(write: &Exchange, seconds: i64) {
    let spec = write.request.spec();
    assert_eq!((&spec["holderIdentity"], &spec["leaseDurationSeconds"]), (&json!(NOBODY), &json!(seconds)), "{spec}");
    assert_eq!(
        (spec.get("acquireTime"), write.request.body["metadata"]["annotations"]["tenure.dev/holder"].as_str()),
        (None, Some(NOBODY))
    );
    assert!((clock::wall() - micros(spec["renewTime"].as_str().expect("a time"))).abs() < 60_000_000, "{spec} is not now");
}

/// The wall clock at this instant.
pub fn wall(instant: Instant) -> i64 {
    let now = clock::wall();
    let ago = clock::boot().since(instant).as_micros();
    now - i64::try_from(ago).expect("not long ago")
}

/// An API time on the same scale.
pub fn micros(time: &str) -> i64 {
    time.parse::<jiff::Timestamp>().expect("a time").as_microsecond()
}

/// `write` is a compare-and-swap on this object.
pub fn assert_on_version(write: &Exchange, object: &Value) {
    for field in ["uid", "resourceVersion"] {
        assert_eq!(write.request.body["metadata"][field], object["metadata"][field], "{field}");
    }
}
