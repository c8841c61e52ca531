//! The conformance cases: black-box tests against a real kube-apiserver, and some of them, unchanged, against the embedded one.
//!
//! The number in a test's name is the case's; a case that covers several situations has a test for each. Where the embedded server
//! lacks a behaviour, the proxy answers in its place.

mod acquire;
mod frozen;
mod loss;
mod night;
mod odd;
mod others;
mod races;
mod refusals;
mod release;
mod renew;
mod surroundings;

use std::time::Duration;

use support::{BOTH, Case, Event, Exchange, Replica, Request, Stage, safe, spec::Spans, stalls, timing};
use tenure::{clock, time::Instant};

/// How late a busy machine may be with what is due at a deadline, beside the time for which it stood still.
const LATE: Duration = Duration::from_secs(1);

/// How late what was due may be, in a span that began at `since`.
fn late(since: Instant) -> Duration {
    LATE + stalls::since(since)
}

/// The cases that run on the embedded server too: those whose course `tenure demo` and a client of `tenure dev-server` may take.
const ON_BOTH: [u16; 12] = [1, 4, 8, 19, 29, 30, 31, 33, 35, 56, 64, 89];

/// All cases, by what they are about.
pub(crate) fn groups() -> Vec<(&'static str, Vec<Case>)> {
    let groups = vec![
        ("acquire", acquire::all()),
        ("odd", odd::all()),
        ("renew", renew::all()),
        ("loss", loss::all()),
        ("frozen", frozen::all()),
        ("night", night::all()),
        ("others", others::all()),
        ("refusals", refusals::all()),
        ("races", races::all()),
        ("release", release::all()),
        ("surroundings", surroundings::all()),
    ];
    groups.into_iter().map(|(name, cases)| (name, cases.into_iter().map(placed).collect())).collect()
}

/// The case on the servers on which it is to run.
fn placed(case: Case) -> Case {
    let number = case.name.strip_prefix("case_").and_then(|rest| rest.split('_').next()?.parse().ok());
    if number.is_some_and(|number| ON_BOTH.contains(&number)) { Case { on: BOTH, ..case } } else { case }
}

/// A replica's last write that the server confirmed before this instant.
pub(crate) fn last_confirmed(me: &Replica, before: Instant) -> Exchange {
    let confirmed = |e: &Exchange| e.request.is_held() && e.succeeded() && e.answered_at() < before;
    me.proxy.log.all().into_iter().rfind(confirmed).expect("a confirmed write")
}

/// A lower bound for the send time of the write from which S counts, in a replica that was cut off at `cut`: each write starts
/// from the one before it, and the reply to the last one may not have arrived.
fn counts_from(me: &Replica, cut: Instant) -> Instant {
    let last = last_confirmed(me, cut);
    let heard_of = last_confirmed(me, last.request.at);
    last_confirmed(me, heard_of.request.at).answered_at()
}

fn assert_stopped_at_s(spans: Spans, me: &Replica, stop: &Event, cut: Instant) {
    let (earliest, latest) = (spans.soft(counts_from(me, cut)), spans.soft(last_confirmed(me, cut).request.at) + late(cut));
    assert!(stop.at() >= earliest, "{:?} before S", earliest.since(stop.at()));
    assert!(stop.at() < latest, "{:?} too long after S", stop.at().since(latest));
}

/// The first write of a replica that would make it the holder, answered.
async fn takeover(me: &Replica) -> Exchange {
    me.proxy.log.first("a takeover", |e| e.request.is_held() && e.answer.is_some()).await
}

/// The first write of a replica that made nobody the holder.
async fn vacated(me: &Replica) -> Exchange {
    me.proxy.log.first("nobody's hold", |e| e.request.is_nobody() && e.succeeded()).await
}

/// How often a replica logged this.
fn said(me: &Replica, words: &str) -> usize {
    me.lines().iter().filter(|line| line.contains(words)).count()
}

/// The fencing token with which a workload was started.
fn token(start: &Event) -> u64 {
    start.variable("TENURE_FENCING_TOKEN").parse().expect("a resourceVersion")
}

pub(crate) fn assert_newer(later: &Event, earlier: &Event) {
    safe(token(later) > token(earlier), || format!("the fencing token did not rise: {earlier:?}, then {later:?}"));
}

fn is_renewal(request: &Request) -> bool {
    request.is_held()
}

async fn assert_dead_by(stage: &Stage, name: &str, end: Instant) {
    until(end + timing::KILL_MARGIN).await;
    let last = stage.witness.last_alive(name);
    assert!(last < end, "alive for {:?} too long", last.since(end));
}

/// Waits until this instant.
async fn until(instant: Instant) {
    tokio::time::sleep(instant.since(clock::boot())).await;
}
