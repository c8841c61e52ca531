//! Measures a change of leader, step by step, as its replicas' spans say, and what a client saw of it.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use tenure::clock;

use super::{Debian, until};
use crate::collector::Seen;

/// How the old leader ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// The old leader is told to stop, and reports how it did.
    HandOver,
    /// The old leader is killed, and reports nothing.
    Crash,
}

impl Debian {
    /// Prints how long each step of the change took that began with `since`, and what its client saw.
    pub(super) async fn tell(&self, what: &str, change: Change, since: Moment, seen: &Gap) {
        let mut spans = Vec::new();
        until("the spans of those who change", async || {
            spans = self.collector.borrow_mut().seen();
            let stopped = change == Change::Crash || part(&spans, since, "standby", "release").is_some();
            stopped && part(&spans, since, "leader", "acquire").is_some()
        })
        .await;
        let (led, acquire) = part(&spans, since, "leader", "acquire").expect("waited for");
        let mut steps = Vec::new();
        let free = match change {
            Change::Crash => since.0,
            Change::HandOver => {
                let (stopped, release) = part(&spans, since, "standby", "release").expect("waited for");
                let proof = part(&spans, since, "standby", "workload.proof").map_or(stopped.begin, |(_, proof)| proof.begin);
                steps.extend([("stop", stopped.begin, proof), ("proof", proof, release.begin)]);
                release.begin
            }
        };
        steps.extend([
            ("detect", free, acquire.begin),
            ("acquire", acquire.begin, acquire.end),
            ("start", acquire.end, led.end),
            ("ready", led.end, seen.until.0),
        ]);
        let took = |(step, from, until): (&str, u64, u64)| format!("{step} {:.1} ms", until.saturating_sub(from) as f64 / 1e6);
        let steps: Vec<_> = steps.into_iter().map(took).collect();
        let longest = seen.longest.as_secs_f64();
        eprintln!("workloads: {what}: its client had no answer for {longest:.2} s at most: {}", steps.join(", "));
    }
}

/// The first transition to this role that began since then, and its part of this name.
fn part<'a>(spans: &'a [Seen], since: Moment, to: &str, name: &str) -> Option<(&'a Seen, &'a Seen)> {
    let is_it = |span: &&Seen| span.begin >= since.0 && span.attributes.get("tenure.to").is_some_and(|role| role == to);
    let transition = spans.iter().find(is_it)?;
    Some((transition, spans.iter().find(|span| span.name == name && span.is_part_of(transition))?))
}

/// Nanoseconds since 1970, as spans have them.
#[derive(Clone, Copy)]
pub(super) struct Moment(pub(super) u64);

impl Moment {
    pub(super) fn now() -> Self {
        Self(u64::try_from(clock::timestamp().as_nanosecond()).expect("after 1970"))
    }
}

/// The longest time without an answer.
pub(super) struct Gap {
    pub(super) longest: Duration,
    pub(super) until: Moment,
}

/// Asks again and again; what was answered well, and the longest time without an answer.
pub(super) struct Client {
    done: Arc<AtomicBool>,
    thread: JoinHandle<(BTreeSet<u64>, Gap)>,
}

impl Client {
    pub(super) fn start(mut ask: impl FnMut(u64) -> bool + Send + 'static) -> Self {
        let done = Arc::new(AtomicBool::new(false));
        let seen = done.clone();
        let thread = std::thread::spawn(move || {
            let (mut well, mut last) = (BTreeSet::new(), clock::boot());
            let mut gap = Gap { longest: Duration::ZERO, until: Moment::now() };
            for number in 0.. {
                if seen.load(Ordering::Relaxed) {
                    break;
                }
                if ask(number) {
                    let silent = clock::boot().since(last);
                    if silent > gap.longest {
                        gap = Gap { longest: silent, until: Moment::now() };
                    }
                    last = clock::boot();
                    well.insert(number);
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            (well, gap)
        });
        Self { done, thread }
    }

    pub(super) fn end(self) -> (BTreeSet<u64>, Gap) {
        self.done.store(true, Ordering::Relaxed);
        self.thread.join().expect("it does not panic")
    }
}
